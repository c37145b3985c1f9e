"""What a job that was handled roughly may leave on its machine: processes, and memory that has a name."""

import pathlib
import time

from run_cases import expect

WITHIN_S = 10  # For what ends, or tidies up, by itself.


def processes_that_name(folder):
    """Process ids whose command line has a path below this folder."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes()
        except OSError:  # It has ended.
            continue
        if f"{folder}/".encode() in words:
            found.append(int(entry.name))
    return found


def named_memory():
    """Files of /dev/shm, and System V's segments that nobody has mapped."""
    segments = [line.split() for line in pathlib.Path("/proc/sysvipc/shm").read_text(encoding="utf-8").splitlines()[1:]]
    return {str(path) for path in pathlib.Path("/dev/shm").iterdir()} | {f"segment {words[1]}" for words in segments if words[6] == "0"}


class LeftBehind:
    """Looks at the machine before something runs on it; afterwards it must look the same."""

    def __init__(self, folder):
        self.folder, self.memory = folder, named_memory()

    def expect_nothing(self):
        deadline = time.monotonic() + WITHIN_S
        while left := [*sorted(named_memory() - self.memory), *(f"process {pid}" for pid in processes_that_name(self.folder))]:
            expect(time.monotonic() < deadline, f"left behind: {', '.join(left)}")
            time.sleep(0.2)
