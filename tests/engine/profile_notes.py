"""Runs that disagree with their profile for long make the next one measure anew, once.

    profile_notes.py BINARY     prints `N passed, M failed, K skipped` last

The llm takes three times as long as its profile says (`debug.slow_shapes`): each run leaves a note beside the profile after 20
steps, the third one measures anew, finds layers as fast as before, and notes that runs take longer for a reason of their own;
the fourth one, as slow, is no reason to measure again.
"""

import json
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "tests" / "engine"))

from checkpoints import ALONE, Bench, expect  # noqa: E402
from tests.support.run_cases import run_cases  # noqa: E402

STEPS = 24  # Two warm up, twenty count.
SLOW = 'debug.slow_shapes=[{module="llm",min_rows=1,max_rows=100000,factor=3}]'


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def runs_that_disagree_make_the_next_one_measure(bench):
    def train(name):
        return bench.train(name, *ALONE, SLOW, f"train.steps={STEPS}")

    def profile():
        found = [path for path in (bench.folder / "profiles").glob("*.json") if not path.name.endswith(".runs.json")]
        expect(len(found) == 1, f"profiles: {found}")
        return found[0]

    train("first")
    first = read(profile())["measured_at"]
    notes = profile().with_suffix(".runs.json")
    expect(notes.is_file(), "no note of a run that took three times as long")
    [note] = read(notes)["runs"]
    expect(note["run"] == str(bench.path("first")) and note["profile"] == first and note["steps"] >= 20
           and note["ratio"] > 1.5, f"the note: {note}")
    output = train("second")
    expect("times as long as it says" not in output, f"one run is no reason to measure:\n{output[:900]}")
    expect(len(read(notes)["runs"]) == 2 and read(profile())["measured_at"] == first, "the second run's note")
    output = train("third")
    expect("the last 2 runs took" in output and str(bench.path("second")) in output, output[:1500])
    expect("measured anew, runs still take" in output, output[:1500])
    anew = read(profile())
    expect(anew["measured_at"] > first and anew["runs_ratio"] > 1.15, f"{anew['measured_at']}, {anew['runs_ratio']}")
    runs = [entry["run"] for entry in read(notes)["runs"]]
    expect(runs == [str(bench.path("third"))], f"notes on the old profile are still there: {runs}")
    output = train("fourth")
    expect(read(profile())["measured_at"] == anew["measured_at"], "it was measured again for what is known")
    print(f"  runs took {note['ratio']:.2f} times as long; {anew['runs_ratio']:.2f} is left beside the new profile", flush=True)


def main():
    with tempfile.TemporaryDirectory(prefix="troupe-notes-") as name:
        bench = Bench(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(name))
        return run_cases([runs_that_disagree_make_the_next_one_measure], lambda case: case(bench))


if __name__ == "__main__":
    sys.exit(main())
