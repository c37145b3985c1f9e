"""A port for a job of a test."""

import socket


def free_port():
    """Of the loopback; nothing else takes it soon."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
