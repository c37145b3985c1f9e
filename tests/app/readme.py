#!/usr/bin/python3
"""README.md and the pages of docs/ word by word: their job files, and their commands as they stand there, in a folder where
it has just been built.

    readme.py TROUPE ROOT [CASE...]

Changed are the steps of trainings, HOST:PORT and PID, which a reader fills in, the home of a reader, and the address of the
first of several machines: all are this one. What is in scripts/ has tests of its own. A command of a page that no case runs
is a fault.
"""

import contextlib
import os
import pathlib
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "actors")]
from tests.support.recorded_runs import read_lines_so_far  # noqa: E402
from tests.support.run_cases import expect, run_cases  # noqa: E402
from whole_jobs import children  # noqa: E402

WITHIN_S = 180  # Many times what one takes where nothing else runs.


def shortened(command):
    """A training of the first job file has a hundred steps."""
    return command + " train.steps=10" if " train " in command and "train.steps" not in command else command


def sections_of(pages):
    """What stands below each heading of these pages; a heading stands once in all of them."""
    sections = {}
    for page in pages:
        for part in page.read_text(encoding="utf-8").split("\n## ")[1:]:
            title, _, body = part.partition("\n")
            expect(title not in sections, f"{page.name}: there is another section '{title}'")
            sections[title] = body
    return sections


def commands_in(section):
    """Its indented lines that call a program by its path, or cmake, without what they say of themselves; but for scripts/."""
    lines = re.findall(r"^    ((?:cmake|(?!scripts/)[\w~.-]+/\S*)(?: .*)?)$", section, re.MULTILINE)
    return [" ".join(shlex.quote(word) for word in shlex.split(line, comments=True)) for line in lines]


def shells_in(section):
    """Its lines of the form `shell 1 $ COMMAND`."""
    return re.findall(r"^    (?:shell|machine) \d \$ (.*?)(?:  +#.*)?$", section, re.MULTILINE)


class Readme:
    """A folder as a reader has it, and what README.md and the pages of docs/ say by section."""

    def __init__(self, binary, root, folder):
        self.root, self.folder = root, folder
        self.sections = sections_of([root / "README.md", *sorted((root / "docs").glob("*.md"))])
        self.untried = {title: {*commands_in(body), *shells_in(body)} for title, body in self.sections.items()}
        (folder / "build").mkdir()
        (folder / "build" / "release").symlink_to(binary.parent)
        (folder / "configs").symlink_to(root / "configs")
        (folder / "first.toml").write_text(self.toml("A first job file"))
        self.run("build/release/troupe data make runs/demo-data")
        self.lines, self.processes = [], []

    def toml(self, title):
        return re.search(r"```toml\n(.*?)```", self.sections[title], re.DOTALL)[1]

    def commands(self, title):
        """Those of a section, which a case is about to run."""
        found = commands_in(self.sections[title])
        expect(found, f"'{title}' has no command")
        self.untried[title] -= set(found)
        return found

    def shells(self, title):
        """The same of those in several shells."""
        found = shells_in(self.sections[title])
        expect(found, f"'{title}' has no shell")
        self.untried[title] -= set(found)
        return found

    def run(self, command, code=0):
        # Without a shell, whose own command line `pkill -f` would find.
        done = subprocess.run(shlex.split(command), cwd=self.folder, capture_output=True, text=True, timeout=WITHIN_S)
        expect(done.returncode == code, f"{command}: exit {done.returncode}\n{done.stdout[-800:]}{done.stderr[-800:]}")
        return done.stdout

    @contextlib.contextmanager
    def running(self, command):
        """A shell of its own: its process, and all that it says into a file."""
        with open(self.folder / f"shell-{len(self.processes)}.log", "w+", encoding="utf-8") as log:
            process = subprocess.Popen(["bash", "-c", f"exec {command}"], cwd=self.folder, stdout=log, stderr=subprocess.STDOUT)
            self.processes.append(process)
            try:
                yield process
            finally:
                for pid in [*children(process.pid), process.pid]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                process.wait()

    def metrics(self, run):
        return read_lines_so_far(self.folder / "runs" / run / "metrics.jsonl")

    def wait_for(self, what, words):
        deadline = time.monotonic() + WITHIN_S
        while not what():
            expect(time.monotonic() < deadline, f"{words}: not within {WITHIN_S} s\n{self.said()}")
            time.sleep(0.05)

    def said(self):
        """The end of what each shell said."""
        logs = [(path.read_text(encoding="utf-8"), path.name) for path in sorted(self.folder.glob("shell-*.log"))]
        return "\n".join(f"{name}: {text[-600:]}" for text, name in logs)

    def wait_for_steps(self, run, count):
        """So many more."""
        least = len(self.metrics(run)) + count
        self.wait_for(lambda: len(self.metrics(run)) >= least, f"{least} steps of {run}")


def a_first_job_file(readme):
    said = [readme.run(shortened(command)) for command in readme.commands("A first job file")]
    expect("no problems" in said[0], said[0])


def its_reference(readme):
    said = [readme.run(shortened(command)) for command in readme.commands("Is the engine right?")]
    expect("within" in said[-1], said[-1])


def has_no_seam(readme, run, whole):
    """A run that was stopped and went on elsewhere: its steps, its losses, and the curve of its report are those of one that
    never stopped."""
    lines, other = readme.metrics(run), readme.metrics(whole)
    expect([line["step"] for line in lines] == [line["step"] for line in other], f"steps {[line['step'] for line in lines]}")
    expect(len({line["generation"] for line in lines}) == 2 and len({line["nodes"] for line in lines}) == 2, "it did not move")
    for line, expected in zip(lines, other):
        expect(abs(line["loss"] - expected["loss"]) <= 1e-3 * expected["loss"], f"step {line['step']}: {line['loss']}, {expected['loss']}")
    curves = []
    for name in (run, whole):
        readme.run(f"build/release/troupe report runs/{name}")
        page = (readme.folder / "runs" / name / "report.html").read_text(encoding="utf-8")
        curves.append(re.search(r'aria-label="Loss over steps 1 to (\d+); each step between ([\d.]+) and ([\d.]+) per', page))
        expect(curves[-1], f"{name}: the report shows no losses")
    expect(curves[0][1] == curves[1][1] == str(len(lines)), "the curve of the report has a seam")
    for edge in (2, 3):
        expect(abs(float(curves[0][edge]) / float(curves[1][edge]) - 1) < 2e-3, "the curves of the reports differ")


def stop_and_go_on(readme):
    with open(readme.folder / "first.toml", "a", encoding="utf-8") as job:
        job.write(readme.toml("Stop, and go on"))
    stopped, resumed, *others = readme.commands("Stop, and go on")
    length = " train.steps=40"
    with readme.running(stopped + length) as job:
        readme.wait_for_steps("first", 3)
        job.send_signal(signal.SIGINT)
        expect(job.wait(WITHIN_S) == 75, f"exit {job.returncode}")
    expect("going on after step" in readme.run(resumed + length), "it did not go on")
    readme.run(stopped + length + " job.run_dir=runs/whole")
    has_no_seam(readme, "first", "whole")
    for command in others:
        readme.run(shortened(command))
    readme.run("build/release/troupe checkpoint show runs/first")
    readme.run("build/release/troupe checkpoint verify runs/first")


def plan_balance_look(readme):
    for title in ("Balance uneven samples", "Ask before training", "Look at a run"):
        for command in readme.commands(title):
            readme.run(shortened(command))
    expect((readme.folder / "step.html").stat().st_size > 10_000, "the trace's page is empty")
    (readme.folder / "watched.toml").write_text((readme.folder / "first.toml").read_text() + readme.toml("Look at a run"))
    readme.run("build/release/troupe validate watched.toml")


def when_machines_fail(readme):
    section = readme.sections["When machines fail"]
    layout = section[section.index("    [[parallel.pipelines]]"):]
    (readme.folder / "other.toml").write_text("".join(line[4:] + "\n" for line in layout[:layout.index("\nWhat cannot")].splitlines()))
    train, status, kill, node, drain, other, stop, long, dead, again = readme.shells("When machines fail")
    events = readme.folder / "runs/failing/events.jsonl"

    def wait_for_event(kind):
        readme.wait_for(lambda: events.exists() and f'"kind":"{kind}"' in events.read_text(), f"{kind}, as events.jsonl says")

    with readme.running(train) as job:
        readme.wait_for_steps("failing", 3)
        where = re.search(r"troupe node --join (\S+)", readme.run(status) + (readme.folder / "runs/failing/train.log").read_text())
        readme.run(kill.replace("PID", str(children(job.pid)[1])))
        wait_for_event("lost")
        expect(where, "status does not say where nodes join")
        with readme.running(node.replace("HOST:PORT", where[1])):
            wait_for_event("joined")
            readme.run(drain)
            wait_for_event("drained")
            if "it stays" not in readme.run(other):  # Who joined and left may have led to the same layout.
                wait_for_event("layout")
            readme.wait_for_steps("failing", 3)
            readme.run(stop)
            expect(job.wait(WITHIN_S) == 75, f"exit {job.returncode}")
    for command in readme.commands("When machines fail"):
        readme.run(command)
    with readme.running(long):
        readme.wait_for_steps("headless", 3)
        readme.run(dead)
        with readme.running(again) as job:
            readme.wait_for_steps("headless", 3)
            told = (readme.folder / "runs/headless/events.jsonl").read_text()
            expect("head-lost" in told and "resumed" not in told, f"it did not go on with what the nodes hold:\n{told}")
            readme.run(stop.replace("failing", "headless"))
            expect(job.wait(WITHIN_S) == 75, f"exit {job.returncode}")


def several_machines(readme):
    first = readme.toml("A first job file")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    by_hand = re.sub(r'listen = "\S+"', f'listen = "{address}"', readme.toml("Several machines"))
    with_key = first[:first.index("[cluster]")] + by_hand
    without = "".join(line for line in with_key.splitlines(keepends=True) if not line.startswith("key = "))
    make_key, train, *nodes = [re.sub(r"--join \S+", f"--join {address}", line) for line in readme.shells("Several machines")]
    readme.run(make_key)
    # On three machines, and in three shells of one, which need no key.
    for job, strip in ((with_key, ""), (without, " --key runs/first.key")):
        with contextlib.ExitStack() as shells:
            # The cases after this one train on their own, whatever becomes of it.
            shells.callback((readme.folder / "first.toml").write_text, first)
            (readme.folder / "first.toml").write_text(job)
            head = shells.enter_context(readme.running(train + " train.steps=3"))
            others = [shells.enter_context(readme.running(node.replace(strip, "") if strip else node)) for node in nodes]
            for process in (head, *others):
                expect(process.wait(WITHIN_S) == 0, f"exit {process.returncode}\n{readme.said()}")
        expect(len(readme.metrics("first")) == 3, f"{len(readme.metrics('first'))} steps")


def a_part_in_ten_minutes(readme):
    with_part = (readme.folder / "first.toml").read_text() + readme.toml("Into a job of yours")
    (readme.folder / "first.toml").write_text(with_part)
    for title in ("In ten minutes", "Change it", "Into a job of yours", "A program of your own"):
        for command in readme.commands(title):
            readme.run(command.replace("~", str(readme.folder)))
    runs = [f"{name}/build/{run}" for name in ("mine", "loom") for run in ("staged", "reference")] + ["runs/own"]
    idle = [run for run in runs if not read_lines_so_far(readme.folder / run / "metrics.jsonl")]
    expect(not idle, f"nothing was trained in {idle}")


def the_guide_to_parts_is_read_in_ten_minutes(readme):
    """At 150 words a minute, which leaves commands their time."""
    words = len((readme.root / "docs" / "parts.md").read_text(encoding="utf-8").split())
    expect(words <= 1500, f"docs/parts.md has {words} words: what is looked up goes to docs/parts-reference.md")


def no_command_is_left_out(readme):
    """Of what the cases before have asked for."""
    left = {title: sorted(commands) for title, commands in readme.untried.items() if commands}
    expect(not left, f"commands that no case runs: {left}")


CASES = [a_first_job_file, its_reference, stop_and_go_on, plan_balance_look, when_machines_fail, several_machines,
         a_part_in_ten_minutes, the_guide_to_parts_is_read_in_ten_minutes, no_command_is_left_out]


def main(binary, root, *wanted):
    with tempfile.TemporaryDirectory(prefix="troupe-readme-") as name:
        readme = Readme(pathlib.Path(binary).resolve(), pathlib.Path(root).resolve(), pathlib.Path(name))
        chosen = [case for case in CASES if not wanted or any(word in case.__name__ for word in wanted)]
        return run_cases(chosen, lambda case: case(readme))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
