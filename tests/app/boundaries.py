#!/usr/bin/python3
"""What `troupe plan` says of the way of rows from encoders to the llm: which, why, and what the others would take.

    boundaries.py TROUPE
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

DEMO = pathlib.Path(__file__).resolve().parents[2] / "configs" / "demo.toml"
ROUTES = ("direct", "leader", "gather-scatter")


def expect(what, good, found):
    if not good:
        raise SystemExit(f"FAILED: {what}: {found}")
    print(f"ok: {what}")


def main(binary):
    with tempfile.TemporaryDirectory(prefix="boundaries-") as name:
        folder = pathlib.Path(name)
        text = re.sub(r"\[\[parallel\.pipelines\]\]\nstages = \[.*?\n\]\n", "", DEMO.read_text(encoding="utf-8"), flags=re.DOTALL)
        (folder / "open.toml").write_text(text, encoding="utf-8")

        def run(*words):
            answer = subprocess.run([binary, *words], cwd=folder, capture_output=True, text=True, timeout=300)
            if answer.returncode != 0:
                raise SystemExit(f"FAILED: {' '.join(words)}: exit {answer.returncode}\n{answer.stdout}{answer.stderr}")
            return answer.stdout

        run("data", "make", "demo")
        # An encoder of one device and an llm of four, which share each row's copies.
        wide = ["open.toml", f"data.sources[0].json={folder}/demo/samples.json", "--cluster", "2x4xH100-80G", "parallel.llm.tp=4",
                "parallel.llm.dp=1", "parallel.llm.pp=1", "parallel.vision.dp=2", "parallel.audio.dp=2", "parallel.vision.tp=1",
                "parallel.audio.tp=1"]
        by_itself = json.loads(run("plan", *wide, "--json"))["boundaries"]
        expect("each projector hands rows to the llm", [one["module"] for one in by_itself] == ["vision_projector", "audio_projector"]
               and all(one["to"] == "llm" for one in by_itself), by_itself)
        for one in by_itself:
            least = min(ROUTES, key=lambda route: one["predicted_ms"][route])
            expect("the route of the least time is taken", one["route"] == least and not one["pinned"], one)
        for route in ROUTES:
            pinned = json.loads(run("plan", *wide, f"scheduler.boundary={route}", "--json"))["boundaries"]
            expect(f"{route} can be pinned", all(one["route"] == route and one["pinned"] for one in pinned)
                   and "pinned by scheduler.boundary" in pinned[0]["why"], pinned)
        said = run("plan", *wide, "scheduler.boundary=leader")
        expect("plan says which and why", "\nbetween modules:\n  vision_projector to llm  leader: pinned by scheduler.boundary; predicted" in said
               and "gather-scatter " in said, said)
    return 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
