"""Threads of a child that stand still while others of it run, as where they wait for something that never comes."""

import ctypes
import os
import pathlib

from run_cases import Skipped

SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
WAIT_ALL = 0x40000000  # Also for threads that are no processes.


def call(request, thread):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long] * 4
    libc.ptrace.restype = ctypes.c_long
    if libc.ptrace(request, thread, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def threads_of(pid):
    """(number, name) of each thread."""
    found = []
    for entry in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            found.append((int(entry.name), (entry / "comm").read_text(encoding="utf-8").strip()))
        except OSError:  # It has ended.
            continue
    return found


class StoppedThreads:
    """Those threads of a process that `chosen` (number, name) picks stand still until this ends or the process does. For
    the main thread. SIGSTOP would stop all of them."""

    def __init__(self, pid, chosen):
        self.pid, self.chosen, self.stopped = pid, chosen, []

    def __enter__(self):
        for number, name in threads_of(self.pid):
            if not self.chosen(number, name):
                continue
            try:
                call(SEIZE, number)
                self.stopped.append(number)
                call(INTERRUPT, number)
                os.waitpid(number, WAIT_ALL)
            except PermissionError as why:
                raise Skipped(f"this machine forbids ptrace: {why}") from None
        return self

    def __exit__(self, *_):
        for number in self.stopped:
            try:
                call(DETACH, number)
            except OSError:  # It has ended.
                continue

    def reap(self):
        """Takes note of stopped threads that were ended: until then their process is not seen to have ended."""
        for number in list(self.stopped):
            try:
                ended, status = os.waitpid(number, WAIT_ALL | os.WNOHANG)
            except ChildProcessError:
                self.stopped.remove(number)
                continue
            if ended and (os.WIFEXITED(status) or os.WIFSIGNALED(status)):
                self.stopped.remove(number)
