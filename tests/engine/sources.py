"""Sources of data that only some nodes see: who does not see one opens nothing of it, and trains as if it did.

    sources.py BINARY [CASE...]      prints `N passed, M failed, K skipped` last

Every run is held against `--reference` (fp64, 1e-10). Nodes that are started by hand have job files of their own, which name
paths that are not there for what they do not see; the head's names lists without media.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "engine"), str(ROOT / "tests" / "actors")]

from parity_sources import EXCHANGE, FRAME_BYTES, PATCH_BYTES, by_medium, deliveries, measured, trained_of  # noqa: E402
from comeback import wait_until  # noqa: E402
from recovery import FP64, JOB, node_of, pipelines, run_on_bench  # noqa: E402
from tests.support.recorded_runs import read_lines, read_lines_so_far  # noqa: E402
from tests.support.run_cases import expect  # noqa: E402

STEPS = 8


def write(path, samples):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(samples), encoding="utf-8")
    return path


class Lists:
    """Two lists of the bench's samples: those with a picture, and the rest."""

    def __init__(self, bench):
        samples = json.loads((bench.folder / "data" / "some.json").read_text(encoding="utf-8"))
        pictures, *others = by_medium(samples)
        self.samples = {"pictures": pictures, "others": [sample for list_ in others for sample in list_]}
        self.media = bench.folder / "data"
        self.paths = {name: write(self.media / f"{name}.json", list_) for name, list_ in self.samples.items()}

    def override(self, names=("pictures", "others"), **nodes):
        """What names these, and of each the nodes that see it, if not all."""
        return "data.sources=[" + ",".join(
            f'{{json="{self.paths[name]}"' + (f",nodes={nodes[name]}" if nodes.get(name) else "") + "}" for name in names) + "]"


def node_job(folder, name, pictures, others):
    """A job file that says where a node has the lists."""
    path = folder / f"{name}.toml"
    path.write_text(f'extends = "{JOB}"\n[cluster]\nnodes = 2\nlocal_nodes = 2\n[parallel]\nmode = "auto"\npipelines = []\n' + "".join(
        f'[[data.sources]]\njson = "{json_}"\nmedia = "{media}"\nnodes = [0, 1]\n' for json_, media in (pictures, others)),
                    encoding="utf-8")
    return path


def start_head(bench, lists, folder, *sources, more=()):
    words = [word for word in pipelines([0, 1]) if not word.startswith("cluster.")]
    head = subprocess.Popen(
        [str(bench.binary), "train", str(JOB), *bench.job, FP64, f"train.steps={STEPS}", f"job.run_dir={folder / 'run'}", *words,
         "cluster.nodes=2", "cluster.local_nodes=0", "cluster.head_timeout_s=0", "data.sources=[" + ",".join(sources) + "]", *more],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    deadline = time.monotonic() + 60
    while not (folder / "run" / "control").exists():
        if head.poll() is not None:
            break
        expect(time.monotonic() < deadline, "the head does not listen")
        time.sleep(0.02)
    return head


def who_does_not_see_a_source_needs_none_of_its_files(bench):
    """Node 0 begins the encoders and has no picture; node 1 has the llm and nothing but pictures; the head has lists alone."""
    lists = Lists(bench)
    nowhere = bench.folder / "is-not-here"
    gone = (nowhere / "list.json", nowhere)
    here = {name: (path, lists.media) for name, path in lists.paths.items()}
    for named, code in ((True, 0), (False, 3)):
        folder = bench.folder / f"apart-{named}"
        tables = []
        for name, nodes in (("pictures", [1]), ("others", [0])):
            path = write(folder / "head" / f"{name}.json", lists.samples[name])
            tables.append(f'{{json="{path}",media="{nowhere if named else lists.media}"' + (f",nodes={nodes}" if named else "") + "}")
        head = start_head(bench, lists, folder, *tables)
        nodes = [node_of(bench, folder / "run", "--node", str(number), "--job", str(node_job(folder, f"node-{number}", *sources)))
                 for number, sources in ((0, (gone, here["others"])), (1, (here["pictures"], gone)))]
        outputs = [process.communicate(timeout=120)[0] for process in (head, *nodes)]
        if not named:  # So these paths are not there.
            expect(head.returncode != 0 and any("is-not-here" in output for output in outputs),
                   f"nodes that should see what is not there went on:\n{outputs}")
            continue
        expect(head.returncode == code, f"exit {head.returncode}\n" + "\n".join(output[-1500:] for output in outputs))
        run = folder / "run"
        reference = bench.reference([lists.override()], STEPS)
        bench.run(["compare", str(reference), str(run), "--rtol", "1e-10", "--loss-rtol", "1e-10"])
        expect(json.loads(bench.run(["data", "audit", str(run), "--json"]))["steps"] == STEPS, "audit")
        sent, received = deliveries(run).values()
        expect(set(sent) == set(received) == {0, 1}, f"content was sent by {set(sent)}, and came to {set(received)}")
        # Node 1 sends what the encoders on node 0 read of samples with a picture: pixels of one frame, and features of sounds.
        patches, frames, _ = measured(bench.binary, [str(JOB), *bench.job], lists.media / "moved.json",
                                      trained_of(run, lists.samples["pictures"]))
        expect(patches > 0 and sum(sent[1]) == PATCH_BYTES * patches + FRAME_BYTES * frames,
               f"{sum(sent[1])} bytes were sent of {patches} patches and {frames} frames")


def nodes_save_though_all_that_the_head_had_is_gone(bench):
    """Lists and profile of the head's machine; each node has one list, elsewhere, and nothing of the source that it does not see."""
    lists = Lists(bench)
    folder = bench.folder / "no-head"
    gone, run = folder / "head", folder / "run"
    tables = []
    for name, nodes in (("pictures", [1]), ("others", [0])):
        path = write(gone / f"{name}.json", lists.samples[name])
        tables.append(f'{{json="{path}",media="{gone}",nodes={nodes}}}')
    profile = next(word.partition("=")[2] for word in bench.job if word.startswith("scheduler.profile="))
    shutil.copy(profile, gone / "profile.json")
    head = start_head(bench, lists, folder, *tables,
                      more=["cluster.head_timeout_s=2", f"scheduler.profile={gone}/profile.json", "train.steps=400"])
    nowhere = (bench.folder / "is-not-here" / "list.json", bench.folder / "is-not-here")
    here = {name: (path, lists.media) for name, path in lists.paths.items()}
    nodes = [node_of(bench, run, "--node", str(number), "--job", str(node_job(folder, f"node-{number}", *sources)))
             for number, sources in ((0, (nowhere, here["others"])), (1, (here["pictures"], nowhere)))]
    wait_until(lambda: head.poll() is not None or len(read_lines_so_far(run / "metrics.jsonl")) >= 3, "three steps")
    head.kill()
    said = head.communicate(timeout=20)[0]
    expect(head.returncode == -signal.SIGKILL, f"the head ended by itself:\n{said}")
    shutil.rmtree(gone)

    outputs = [process.communicate(timeout=60)[0] for process in nodes]
    facts = {}

    def is_told():
        facts.update(json.loads((run / "run.json").read_text(encoding="utf-8")))
        return "exit_code" in facts

    wait_until(is_told, "the head that saves ends", within=30)
    expect(facts["exit_code"] == 75, f"the run's end: {facts}\n" + "\n".join(output[-1500:] for output in outputs))
    steps = len(read_lines(run / "metrics.jsonl"))
    expect((run / f"checkpoints/step-{steps}/manifest.json").exists(), f"step {steps} is not saved: {list(run.glob('checkpoints/*'))}")
    bench.run(["checkpoint", "verify", str(run)])
    resolved = (run / "resolved.toml").read_text(encoding="utf-8")
    expect(str(gone) in resolved and str(lists.paths["others"]) not in resolved, f"the job names what a node has:\n{resolved}")


def another_node_that_sees_it_takes_over(bench):
    lists = Lists(bench)
    data = lists.override(pictures=[1, 2])
    for lost, more in ((1, []), (2, EXCHANGE)):  # Also where encoders share each step out, whose rows move as well.
        job = bench.start(f"taken-over-{lost}", *pipelines([0], [1], [2]), data, *more, steps=20)
        job.wait_for(4)
        job.signal(lost, signal.SIGKILL)
        job.finish()
        bench.check(job, [lists.override()], steps=20)
        expect([event["nodes"] for event in job.events()] == [[lost]], f"events: {job.events()}")
        sent, received = deliveries(job.run).values()
        expect(3 - lost in sent and 0 in received, f"content was sent by {set(sent)}, and came to {set(received)}")
        told = {(line["generation"], line["exchanged"]) for line in read_lines(job.run / "metrics.jsonl")}
        expect(({(1, True), (2, True)} <= told) == bool(more), f"generations and whether their steps were exchanged: {told}")


# Window: nobody left sees a source of data, or no layout fits them
def the_last_node_that_sees_it_ends_the_job(bench):
    """The others, who have all of the model, save it: it can be gone on with once the node is back, and no step is lost."""
    lists = Lists(bench)
    data = lists.override(others=[1])
    for name, more in (("last", []), ("last-saved", ["checkpoint.every_steps=2", "recovery.from_checkpoint=false"])):
        words = [f"source-{name}", *pipelines([0], [1], [2]), data, *more]
        job = bench.start(*words, steps=20)
        job.wait_for(4)
        job.signal(1, signal.SIGKILL)
        output = job.finish(75)
        told = f"no node of the layout sees data.sources[1] ({lists.paths['others']}), which is only on node 1"
        expect(told in output, f"the source is not named:\n{output[-2000:]}")
        saved = [line["step"] for line in read_lines(job.run / "metrics.jsonl")][-1]
        expect(f"step {saved} is saved: the same command goes on" in output, f"step {saved} is not saved:\n{output[-2000:]}")
        job = bench.start(*words, steps=20)
        job.finish()
        bench.check(job, [lists.override()], steps=20)


def who_alone_sees_a_source_does_not_leave(bench):
    lists = Lists(bench)
    job = bench.start("stays", *pipelines([0], [1], [2]), lists.override(others=[1]), steps=60)
    job.wait_for(4)
    done = subprocess.run([str(bench.binary), "ctl", str(job.run), "drain", "1"], capture_output=True, text=True, timeout=60,
                          check=False)
    expect(done.returncode == 2 and "no node of the layout sees data.sources[1]" in done.stderr,
           f"exit {done.returncode}\n{done.stdout}{done.stderr}")
    job.finish()
    bench.check(job, [lists.override()], steps=60)
    expect(not job.events("drained"), "it left")


def what_moves_is_on_paper_too(bench):
    lists = Lists(bench)
    model = [str(JOB), *bench.job, FP64]
    words = [*model, *pipelines([0], [1], [2])]

    def simulated(layout, *data):
        trace = bench.folder / "paper.json"
        told = bench.run(["simulate", *model, *layout, *data, "--steps", "1", "--timeline", str(trace), "--json"])
        return json.loads(told)["step_ms"], "send content" in trace.read_text(encoding="utf-8")

    for nodes in (None, [1, 2]):
        moves = simulated(pipelines([0], [1], [2]), lists.override(pictures=nodes))[1]
        expect(moves == (nodes is not None), f"content of sources on {nodes}")
    # On one pipeline whose every sample waits for it: elsewhere others may have more to do meanwhile.
    step_ms = [simulated(pipelines([0, 1]), lists.override(["pictures"], pictures=nodes))[0] for nodes in (None, [1])]
    expect(step_ms[1] > step_ms[0], f"what moves takes no time: {step_ms}")
    bench.run(["plan", *words, lists.override(pictures=[1, 2])])
    done = subprocess.run([str(bench.binary), "whatif", *words, lists.override(others=[1]), "--lose", "1"], capture_output=True,
                          text=True, timeout=60, check=False)
    expect(done.returncode == 2 and "no node of the layout sees data.sources[1]" in done.stderr,
           f"exit {done.returncode}\n{done.stdout}{done.stderr}")
    bench.run(["whatif", *words, lists.override(pictures=[1, 2]), "--lose", "1"])


def a_source_on_nodes_that_are_not_there_is_refused(bench):
    lists = Lists(bench)
    done = subprocess.run([str(bench.binary), "validate", str(JOB), *bench.job, lists.override(pictures=[4])], capture_output=True,
                          text=True, timeout=60, check=False)
    expect(done.returncode == 2 and "data.sources[0].nodes: there is no node 4, the job has 4" in done.stdout + done.stderr,
           f"exit {done.returncode}\n{done.stdout}{done.stderr}")


CASES = [who_does_not_see_a_source_needs_none_of_its_files, nodes_save_though_all_that_the_head_had_is_gone, another_node_that_sees_it_takes_over,
         the_last_node_that_sees_it_ends_the_job, who_alone_sees_a_source_does_not_leave,
         what_moves_is_on_paper_too, a_source_on_nodes_that_are_not_there_is_refused]


if __name__ == "__main__":
    sys.exit(run_on_bench(CASES, seed=3))
