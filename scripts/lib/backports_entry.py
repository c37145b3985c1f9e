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


def find_entry(apt):
    """The entry for backports, or None. `apt`: the folder that holds sources.list and sources.list.d."""
    for pattern, read in (
        ("sources.list.d/*.sources", from_deb822),
        ("sources.list", from_one_line),
        ("sources.list.d/*.list", from_one_line),
    ):
        for path in sorted(glob.glob(f"{apt}/{pattern}")):
            with open(path, encoding="utf-8", errors="replace") as file:
                if entry := read(file.read()):
                    return entry
    return None


if __name__ == "__main__":
    found = find_entry("/etc/apt")
    if found is None:
        sys.exit(1)
    print(found)
