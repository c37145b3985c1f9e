"""Prints the machine's own apt entry for bookworm with the suite changed to bookworm-backports.

Reads deb822 (*.sources) and one-line (*.list) files; the security entry is never taken.
Exits 1 when there is no such entry.
"""

import glob
import re
import sys


def from_deb822(text):
    for stanza in re.split(r"\n\s*\n", text):
        lines = [line for line in stanza.splitlines() if line.strip() and not line.startswith("#")]
        fields = dict(line.split(":", 1) for line in lines if re.match(r"^[A-Za-z-]+:", line))
        suites = fields.get("Suites", "").split()
        enabled = fields.get("Enabled", "yes").strip().lower() != "no"
        if "deb" in fields.get("Types", "").split() and "bookworm" in suites and enabled:
            return "\n".join(
                "Suites: bookworm-backports" if line.startswith("Suites:") else line for line in lines
            )
    return None


def from_one_line(text):
    for line in text.splitlines():
        match = re.match(r"^\s*(deb\s+(?:\[[^\]]*\]\s+)?\S+\s+)bookworm(\s+.*)$", line)
        if match:
            return f"{match.group(1)}bookworm-backports{match.group(2)}"
    return None


for pattern, read in (
    ("/etc/apt/sources.list.d/*.sources", from_deb822),
    ("/etc/apt/sources.list", from_one_line),
    ("/etc/apt/sources.list.d/*.list", from_one_line),
):
    for path in sorted(glob.glob(pattern)):
        with open(path, encoding="utf-8", errors="replace") as file:
            entry = read(file.read())
        if entry:
            print(entry)
            sys.exit(0)
sys.exit(1)
