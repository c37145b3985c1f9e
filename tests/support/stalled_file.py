"""A file that cannot be opened for a while, as on a network file system whose server is gone."""

import fcntl
import signal
import time

from run_cases import Skipped


class NoLeases(Skipped):
    """This file system cannot do it."""


class StalledFile:
    """Whoever else opens the file waits until this ends, by a lease of the kernel: it takes the lease away 45 s after
    somebody asked for the file. For the main thread; one at a time."""

    def __init__(self, path):
        self.path, self.file, self.is_wanted = path, None, False

    def __enter__(self):
        signal.signal(signal.SIGIO, self._note)  # How the kernel says that somebody asks.
        self.file = open(self.path, "r+b")
        try:
            fcntl.fcntl(self.file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError as why:
            self.file.close()
            raise NoLeases(f"this file system has no leases: {why}") from None
        return self

    def __exit__(self, *_):
        self.file.close()

    def _note(self, *_):
        self.is_wanted = True

    def wait_until_wanted(self, process, seconds=60):
        """True once somebody waits for the file; False where `process` ended or took longer."""
        deadline = time.monotonic() + seconds
        while not self.is_wanted and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        return self.is_wanted
