"""What the log of a run tells of the index of lengths; an index that is damaged."""

import re

LINE = re.compile(r"lengths of epoch \d+: of (\d+) samples, (\d+) from the index")
DAMAGED = "cannot be used"


def log_of(run):
    return (run / "train.log").read_text(encoding="utf-8")


def counts(run):
    """Samples whose lengths were looked up, and those that the index knew."""
    found = [[int(number) for number in match] for match in LINE.findall(log_of(run))]
    return tuple(map(sum, zip(*found))) if found else (0, 0)


def damage(folder):
    """Changes a byte in the middle of each file of an index; returns how many there are."""
    files = sorted(folder.glob("*.lengths"))
    for file in files:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 0x20
        file.write_bytes(content)
    return len(files)


def faults_of_indexes(first, second, third):
    """Of a run that begins an index, one that finds all in it, and one that finds it damaged."""
    faults = []
    samples, known = counts(first)
    if samples == 0 or known > samples // 4:  # Texts that occur twice need no reading the second time.
        faults.append(f"with an empty index {known} of {samples} lengths came from it")
    samples, known = counts(second)
    if samples == 0 or known != samples:
        faults.append(f"with a full index {known} of {samples} lengths came from it")
    samples, known = counts(third)
    if samples == 0 or known > samples // 4:
        faults.append(f"with a damaged index {known} of {samples} lengths came from it")
    if DAMAGED in log_of(second) or DAMAGED not in log_of(third):
        faults.append("the log does not tell a damaged index from a sound one")
    return faults
