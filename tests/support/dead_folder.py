"""A folder on a file system whose server is gone: whoever looks into it waits."""

import contextlib
import ctypes
import os

from run_cases import Skipped

LAZILY = 2  # umount2's MNT_DETACH.


@contextlib.contextmanager
def dead_folder(path):
    """Mounts it there until the end, by the kernel's FUSE without anybody who answers. Those that wait can be killed, as on
    a network mount that is `soft` or `intr`."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        server = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as why:
        raise Skipped(f"no FUSE here: {why}") from None
    try:
        path.mkdir()
        settings = f"fd={server},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}".encode()
        if libc.mount(b"nobody", bytes(path), b"fuse", 0, settings) != 0:
            raise Skipped(f"cannot mount a file system here: {os.strerror(ctypes.get_errno())}")
        try:
            yield path
        finally:
            libc.umount2(bytes(path), LAZILY)
    finally:
        os.close(server)  # Ends what still waits.
