"""Jobs that lose what nobody else has, that begin with few nodes, and that keep some spare: they come back by themselves.

    comeback.py BINARY [CASE...]     prints `N passed, M failed, K skipped` last

Jobs, data and oracle are those of recovery.py.
"""

import array
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "engine"), str(ROOT / "tests" / "actors")]

from recovery import FP64, JOB, STEPS, Job, ctl, expect, kill_head, pipelines, run_on_bench  # noqa: E402
from whole_jobs import alive, children  # noqa: E402
from tests.support.free_port import free_port  # noqa: E402
from tests.support.recorded_runs import read_lines, read_safetensors  # noqa: E402

KEY = "5a" * 32


def wait_until(is_so, what, within=60):
    deadline = time.monotonic() + within
    while not is_so():
        expect(time.monotonic() < deadline, f"not within {within} s: {what}")
        time.sleep(0.02)


def saved(job):
    names = (path.parent.name[5:] for path in job.run.glob("checkpoints/step-*/manifest.json"))
    return max((int(name) for name in names if name.isdigit()), default=0)


def steps_once(job, steps=STEPS):
    found = [line["step"] for line in read_lines(job.run / "metrics.jsonl")]
    expect(found == list(range(1, steps + 1)), f"a step stands twice, or not at all: {found}")


class ByHand(Job):
    """A head whose nodes are all started like those of other machines."""

    def __init__(self, bench, name, count, words, steps=STEPS):
        os.environ["TROUPE_KEY"] = KEY
        try:
            self.port = free_port()
            super().__init__(bench, name, [*words, f"cluster.nodes={count}", "cluster.local_nodes=0", "cluster.head_timeout_s=0",
                                           f"cluster.listen=127.0.0.1:{self.port}"], steps)
        finally:
            del os.environ["TROUPE_KEY"]
        self.machines = {}

    def start_node(self, node):
        self.machines[node] = subprocess.Popen(
            [str(self.bench.binary), "node", "--join", f"127.0.0.1:{self.port}", "--node", str(node)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "TROUPE_KEY": KEY})

    def wait_for(self, step, within=60):
        wait_until(lambda: self.steps() >= step, f"step {step}", within)

    def kill(self, node):
        self.machines[node].kill()
        self.machines.pop(node).communicate()

    def all_end(self, code=0):
        output = self.finish(code)
        for node, process in self.machines.items():
            said = process.communicate(timeout=20)[0]
            expect(process.returncode == code, f"node {node}: {process.returncode}\n{said}")
        return output


# ---- cases ----------------------------------------------------------------------------------------


# Window: nobody holds a shard any more
def a_job_begins_again_from_its_checkpoint_by_itself(bench):
    """Three times the last copy of something is lost, at last within the first step after one."""
    job = bench.start("again", *pipelines([0, 1]), "checkpoint.every_steps=2")
    pid = job.process.pid
    for step in (4, 9, 10):
        job.wait_for(step)
        wait_until(lambda: saved(job) >= 2, "a checkpoint")
        before = saved(job)
        nodes = children(pid)
        os.kill(nodes[1], signal.SIGKILL)
        wait_until(lambda: len(set(children(pid)) - set(nodes)) == 2, "new nodes")
        expect(not any(alive(node) for node in nodes), "nodes of before are left behind")
        wait_until(lambda: len(job.events("resumed")) > 0 and job.events("resumed")[-1]["step"] > before, "it goes on")
    job.nodes = children(pid)
    output = job.finish()
    expect(output.count("the job begins again from there") == 3, f"the log does not tell:\n{output[-2500:]}")
    bench.check(job)
    steps_once(job)
    why = [event["why"] for event in job.events("resumed")]
    expect(len(why) == 3 and all("was lost: was killed by signal 9" in text and "/step-" in text for text in why), f"why: {why}")
    expect([line["generation"] for line in read_lines(job.run / "metrics.jsonl")][-1] == 4, "generations")


def tensors_of(folder):
    """All that a checkpoint, or an incomplete save, has."""
    return {name: tensor for file in folder.glob("state-*.safetensors") for name, tensor in read_safetensors(file).items()}


def expect_close(name, found, wanted):
    (dtype, raw), (wanted_dtype, wanted_raw) = found, wanted
    expect(dtype == wanted_dtype and len(raw) == len(wanted_raw), f"{name} is {dtype} instead of {wanted_dtype}")
    if dtype != "F64":
        expect(raw == wanted_raw, f"{name} is another one")
        return
    for a, b in zip(array.array("d", raw), array.array("d", wanted_raw), strict=True):
        expect(abs(a - b) <= 1e-10 * max(1, abs(b)), f"{name}: {a} instead of {b}")


# Window: nobody holds a shard any more
def what_lives_is_saved_where_nobody_has_the_rest(bench):
    """No checkpoint, and the llm goes with its node: the encoders of the last finished step are saved, and nothing goes on from them."""
    job = bench.start("part", *pipelines([0, 1]), "recovery.from_checkpoint=false")
    job.wait_for(4)
    job.signal(1, signal.SIGKILL)
    output = job.finish(75)
    parts = list(job.run.glob("checkpoints/step-*.incomplete-*"))
    expect(len(parts) == 1 and saved(job) == 0, f"saved is {sorted(job.run.glob('checkpoints/*'))}\n{output[-1500:]}")
    step = job.steps()
    expect(parts[0].name == f"step-{step}.incomplete-1", f"{parts[0].name} is not of step {step}")
    for word in (f"what is left of step {step} is saved ({parts[0]})", "(last held by node 1 ("):
        expect(word in output, f"'{word}' is not told:\n{output[-1500:]}")
    told = job.events("incomplete")
    expect(len(told) == 1 and told[0]["nodes"] == [1] and str(parts[0]) in told[0]["why"], f"events: {told}")

    reference = bench.folder / "part-reference"
    bench.run(["train", str(JOB), *bench.job, FP64, f"train.steps={STEPS}", "--reference", f"job.run_dir={reference}",
               "checkpoint.every_steps=1", "checkpoint.keep_last=0"])
    wanted, found = tensors_of(reference / f"checkpoints/step-{step}"), tensors_of(parts[0])
    modules = {name.partition(".")[0] for name in found}
    expect("llm" not in modules and {"vision", "audio"} <= modules, f"modules: {modules}")
    lost = {name for name in wanted if name.startswith("llm.")}
    expect(set(found) | lost == set(wanted), f"neither saved nor lost: {sorted(set(wanted) - lost - set(found))[:5]}")
    for name, tensor in found.items():
        expect_close(name, tensor, wanted[name])
    manifest = json.loads((parts[0] / "manifest.json").read_text(encoding="utf-8"))
    missing = {manifest["parameters"][shard["parameter"]]["name"] for shard in manifest["missing"]}
    expect(missing == {name.partition("@")[0] for name in lost}, f"missing: {sorted(missing)[:5]}")

    for words in (["--resume", str(job.run)], [str(JOB), *bench.job, FP64, f"train.steps={STEPS}", *pipelines([0, 1]),
                                               f"job.run_dir={job.run}"]):
        done = subprocess.run([str(bench.binary), "train", *words], capture_output=True, text=True, timeout=120, check=False)
        expect(done.returncode == 3, f"exit {done.returncode}\n{done.stdout[-800:]}{done.stderr[-800:]}")
        for word in (str(parts[0]), f"of step {step} only a part is saved; nobody held any more llm.", "held by node 1",
                     f"another save of step {step} has that", "--fresh"):
            expect(word in done.stderr, f"'{word}' is not told:\n{done.stderr}")
    listed = json.loads(bench.run(["checkpoint", "list", str(job.run), "--json"]))
    expect([("incomplete" in one, one["step"]) for one in listed] == [(True, step)], f"listed: {listed}")
    resumed = [str(JOB), *bench.job, FP64, f"train.steps={STEPS}", *pipelines([0, 1]), f"job.run_dir={job.run}"]
    show = ["checkpoint", "show", str(job.run)]
    for words, code in ((show, 3), ([*show, "--step", str(step)], 3), (["checkpoint", "verify", str(job.run)], 3), (["validate", *resumed], 0)):
        done = subprocess.run([str(bench.binary), *words], capture_output=True, text=True, timeout=60, check=False)
        expect(done.returncode == code, f"{words[:2]}: exit {done.returncode}\n{done.stdout[-800:]}{done.stderr[-800:]}")
        for word in (str(parts[0]), f"of step {step} only a part is saved; nobody held any more llm.", f"another save of step {step} has that"):
            expect(word in done.stderr + done.stdout, f"{words[:2]}: '{word}' is not told:\n{done.stderr}{done.stdout}")
    again = bench.start("part", *pipelines([0, 1]), "--fresh")
    again.finish()
    bench.check(again)


def nodes_without_a_head_save_what_lives(bench):
    """The head and the node with the llm go; the other node waits for another head, then saves what it has."""
    job = bench.start("headless-part", *pipelines([0, 1]), "cluster.head_timeout_s=2", steps=40)
    job.wait_for(3)
    kill_head(job)
    os.kill(job.nodes[1], signal.SIGKILL)
    wait_until(lambda: not alive(job.nodes[0]), "the node ends")
    facts = {}

    def is_told():
        facts.update(json.loads((job.run / "run.json").read_text(encoding="utf-8")))
        return "exit_code" in facts

    wait_until(is_told, "the head that saves ends")
    parts = list(job.run.glob("checkpoints/step-*.incomplete-2"))
    expect(facts["exit_code"] == 75 and len(parts) == 1, f"the run's end: {facts}, {parts}")
    expect("no head came for the nodes in time; what is left of step" in facts["message"], f"the run's end: {facts}")
    manifest = json.loads((parts[0] / "manifest.json").read_text(encoding="utf-8"))
    expect({shard["held_by"] for shard in manifest["missing"]} == {"node 1"}, f"missing: {manifest['missing'][:3]}")
    expect(manifest["progress"]["step"] == job.steps() >= 3, f"of step {manifest['progress']['step']}, trained are {job.steps()}")


# Window: the head is lost, and nodes that held what nobody else has
def half_a_model_is_given_up_only_where_that_is_asked(bench):
    """The head and the node with the llm go: neither the same command nor the one that the other node names gives up what that holds."""
    for name, more, way in (("nothing-saved", [], "else --fresh begins anew"),
                            ("saved", ["recovery.from_checkpoint=false"],
                             "recovery.from_checkpoint=true goes back to the checkpoint of step ")):
        words = [*pipelines([0, 1]), "cluster.head_timeout_s=60", *more]
        job = bench.start(f"half-{name}", *words, steps=400)
        job.wait_for(3)
        if more:
            ctl(bench, job, "checkpoint")
            wait_until(lambda job=job: saved(job) > 0, "a checkpoint")
            job.wait_for(saved(job) + 2)
        kill_head(job)
        os.kill(job.nodes[1], signal.SIGKILL)
        time.sleep(0.4)  # Until a step whose word node 0 heard is finished there.
        before = saved(job), (job.run / "metrics.jsonl").read_bytes()
        told = [bench.start(f"half-{name}", *words, steps=400).finish(75)]
        done = subprocess.run([str(bench.binary), "train", "--resume", str(job.run)], capture_output=True, text=True, timeout=60,
                              check=False)
        told.append(done.stdout + done.stderr)
        expect(done.returncode == 75, f"{name}: --resume ends with {done.returncode}:\n{told[1][-1500:]}")
        for output in told:
            for word in ("nodes of this run wait for their head with the state of step ", "no other node has llm.", "missing: node 1", way):
                expect(word in output, f"{name}: '{word}' is not told:\n{output[-1500:]}")
        expect(alive(job.nodes[0]), f"{name}: node 0 is gone with what it holds:\n{told[1][-1500:]}")
        expect((saved(job), (job.run / "metrics.jsonl").read_bytes()) == before, f"{name}: the run was touched")
        os.kill(job.nodes[0], signal.SIGKILL)


def split_into_parts(checkpoint):
    """What each device wrote of a checkpoint becomes an incomplete save of its own."""
    whole = json.loads((checkpoint / "manifest.json").read_text(encoding="utf-8"))
    states = [number for number, file in enumerate(whole["files"]) if file["name"].startswith("state-")]
    for number in states:
        part = checkpoint.with_name(f"{checkpoint.name}.incomplete-{number}")
        shutil.copytree(checkpoint, part)
        for other in states:
            if other != number:
                (part / whole["files"][other]["name"]).unlink()
        own = [shard for shard in whole["shards"] if shard["file"] == number]
        missing = [{key: shard[key] for key in ("parameter", "kind", "box")} for shard in whole["shards"] if shard["file"] != number]
        manifest = {**whole, "files": [whole["files"][number]], "shards": [{**shard, "file": 0} for shard in own],
                    "missing": [{**shard, "held_by": "a node that is lost"} for shard in missing]}
        (part / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    shutil.rmtree(checkpoint)
    return len(states)


def parts_of_one_step_are_put_together(bench):
    words = pipelines([0, 1])
    job = bench.start("parts", *words)
    job.wait_for(4)
    job.process.send_signal(signal.SIGTERM)
    job.finish(75)
    step = saved(job)
    expect(split_into_parts(job.run / f"checkpoints/step-{step}") == 2 and saved(job) == 0, "it is not split")
    done = subprocess.run([str(bench.binary), "checkpoint", "show", str(job.run)], capture_output=True, text=True, timeout=60, check=False)
    expect(done.returncode == 3 and "which have all of it together" in done.stderr and "--resume puts them together" in done.stderr,
           f"exit {done.returncode}: {done.stderr}")
    again = bench.start("parts", *words)
    output = again.finish()
    expect("incomplete saves were put together: " in output, f"the log does not tell:\n{output[:1500]}")
    expect([event["step"] for event in again.events("resumed")] == [step + 1], f"events: {again.events('resumed')}")
    bench.check(again)
    steps_once(again)


def halves_that_did_not_meet_save_parts_that_are_put_together(bench):
    """Node 0 saves its part while the others stand still, they save theirs when it is gone; the same command goes on from both."""
    words = [*pipelines([0, 1, 2]), "cluster.head_timeout_s=2"]
    job = bench.start("halves", *words)
    job.wait_for(3)
    job.process.send_signal(signal.SIGSTOP)
    time.sleep(0.4)  # Until what the head has said has reached all.
    kill_head(job)
    for node in (1, 2):  # Behind its end: the system hangs up on those that stand still when a head ends that started them.
        job.signal(node, signal.SIGSTOP)
    facts = {}

    def has_ended(incarnation):
        facts.clear()
        facts.update(json.loads((job.run / "run.json").read_text(encoding="utf-8")))
        return facts["incarnation"] == incarnation and facts.get("exit_code") is not None

    def parts():
        return sorted(path.name for path in job.run.glob("checkpoints/step-*.incomplete-*"))

    try:
        wait_until(lambda: not alive(job.nodes[0]) and has_ended(2), "node 0 saves its part and ends")
        step = job.steps()
        expect(parts() == [f"step-{step}.incomplete-2"], f"parts: {parts()}")
    finally:
        for node in (1, 2):
            job.signal(node, signal.SIGCONT)
    wait_until(lambda: not any(alive(pid) for pid in job.nodes) and has_ended(3), "the others save theirs and end")
    expect(facts["exit_code"] == 75 and parts() == [f"step-{step}.incomplete-{k}" for k in (2, 3)], f"parts: {parts()}, {facts}")
    again = bench.start("halves", *words)
    output = again.finish()
    expect("incomplete saves were put together: " in output and not parts(), f"the log does not tell:\n{output[:1500]}")
    expect([event["step"] for event in again.events("resumed")] == [step + 1], f"events: {again.events('resumed')}")
    bench.check(again)
    steps_once(again)


def a_job_that_is_lost_again_and_again_ends(bench):
    """Whatever kills it needs somebody's eyes: after three tries from one checkpoint it ends with 75."""
    job = bench.start("hopeless", *pipelines([0, 1]), steps=400)
    job.wait_for(3)
    ctl(bench, job, "checkpoint")
    wait_until(lambda: saved(job) > 0, "a checkpoint")
    pid, killed = job.process.pid, set()
    for tries in range(4):
        wait_until(lambda: len(set(children(pid)) - killed) == 2, f"nodes of try {tries}")
        job.nodes = sorted(set(children(pid)) - killed)
        first = saved(job) + 1
        wait_until(lambda: len(job.events("resumed")) >= min(tries, 1) and job.steps() >= first, "it trains")
        time.sleep(0.3)
        killed |= set(job.nodes)
        os.kill(job.nodes[0], signal.SIGKILL)
    output = job.finish(75)
    expect(output.count("the job begins again from there") == 3, f"tries:\n{output[-2500:]}")
    expect("the same command goes on from there" in output, f"no way on is named:\n{output[-2500:]}")


def nodes_of_other_machines_begin_again_too(bench):
    job = ByHand(bench, "by-hand", 2, [*pipelines([0, 1])[:1], "checkpoint.every_steps=2"])
    for node in (0, 1):
        job.start_node(node)
    job.wait_for(5)
    wait_until(lambda: saved(job) >= 2, "a checkpoint")
    job.kill(1)
    wait_until(lambda: "the job begins again" in (job.run / "train.log").read_text(encoding="utf-8"), "the word to begin again")
    time.sleep(1.5)  # The other machine takes its time.
    job.start_node(1)
    survivor = job.machines[0]
    job.finish()
    said = survivor.communicate(timeout=20)[0]
    expect(survivor.returncode == 0 and "begins again: node 1" in said and "the job is done" in said, f"node 0:\n{said}")
    expect(job.machines[1].wait(timeout=20) == 0, "the new node")
    bench.check(job)
    steps_once(job)


def a_job_begins_with_few_nodes_and_takes_up_a_late_one(bench):
    job = ByHand(bench, "few", 3, [*pipelines([0], [1], [2])[:1], "cluster.min_nodes=2", "cluster.join_timeout_s=5"], steps=40)
    for node in (0, 2):
        job.start_node(node)
    job.wait_for(4)
    log = (job.run / "train.log").read_text(encoding="utf-8")
    expect("node 1 did not come: the job begins without" in log, f"the log does not tell:\n{log}")
    job.start_node(1)
    wait_until(lambda: job.events("joined"), "the late node comes in")
    job.all_end()
    bench.check(job, steps=40)
    steps_once(job, 40)
    nodes = [line["nodes"] for line in read_lines(job.run / "metrics.jsonl")]
    expect(nodes[0] == 2 and nodes[-1] == 3, f"nodes: {nodes}")


# Window: costs are measured
def a_node_that_is_lost_while_costs_are_measured_was_never_there(bench):
    """The head measures layers before it opens its door: who knocks, and dies, leaves no trace."""
    job = ByHand(bench, "measuring", 2, [*pipelines([0], [1])[:1], 'scheduler.profile=""'])
    for node in (0, 1):
        job.start_node(node)
    time.sleep(1)  # Of the five that measuring takes.
    expect(not (job.run / "control").exists(), "the door is open before costs are measured")
    job.kill(1)
    job.start_node(1)
    output = job.all_end()
    expect(re.search(r"layer costs: .*measured in [3-9] s", output), f"no costs were measured:\n{output[:1500]}")
    bench.check(job)
    steps_once(job)
    expect(not job.events("lost") and "was lost" not in output, f"a node that never joined is a loss:\n{output[-1500:]}")


def too_few_nodes_save_and_end(bench):
    """Below cluster.min_nodes it trains on for recovery.wait_for_nodes_s: a node that comes ends the wait, none the job."""
    words = [*pipelines([0], [1])[:1], "cluster.min_nodes=2", "recovery.wait_for_nodes_s=4"]
    job = ByHand(bench, "too-few", 2, words, steps=4000)
    for node in (0, 1):
        job.start_node(node)
    job.wait_for(3)
    job.kill(1)
    wait_until(lambda: "1 of at least 2 nodes" in (job.run / "train.log").read_text(encoding="utf-8"), "the warning")
    job.start_node(1)
    wait_until(lambda: job.events("joined"), "a node joins")
    time.sleep(5)
    expect(job.process.poll() is None, "it ended although a node came")
    job.kill(0)
    output = job.finish(75)
    expect("1 of at least 2 nodes (cluster.min_nodes) took part for 4 s" in output, f"the reason:\n{output[-1500:]}")
    expect(saved(job) == job.steps(), "the last step is not saved")
    job.machines[1].communicate(timeout=20)


def a_spare_node_stands_by_and_takes_the_place_of_a_lost_one(bench):
    for name, words in (("hand", pipelines([0], [1])[:1]), ("auto", ["parallel.pipelines=[]", "parallel.mode=auto", "cluster.fault_tolerance=1"])):
        job = bench.start(f"spare-{name}", *words, "cluster.local_nodes=3", "cluster.spares=1")
        job.wait_for(4)
        plans = [json.loads((job.run / "plan.json").read_text(encoding="utf-8"))]
        job.signal(0, signal.SIGKILL)
        wait_until(lambda: job.events() or job.process.poll() is not None, "the loss")
        plans.append(json.loads((job.run / "plan.json").read_text(encoding="utf-8")))
        job.finish()
        bench.check(job)
        nodes = [{device["node"] for device in plan["devices"]} for plan in plans]
        expect(nodes == [{0, 1, 2}, {1, 2}], f"{name}: nodes of the layouts: {nodes}")
        standing_by = [{plan["devices"][one["device"]]["node"] for one in plan["standbys"]} for plan in plans]
        expect(standing_by[0] == {2}, f"{name}: nodes that stand by: {standing_by}")
        expect(name == "auto" or job.events()[0]["copy_bytes"] == 0, f"the spare node had not everything: {job.events()}")


CASES = [a_job_begins_again_from_its_checkpoint_by_itself, what_lives_is_saved_where_nobody_has_the_rest,
         nodes_without_a_head_save_what_lives, half_a_model_is_given_up_only_where_that_is_asked, parts_of_one_step_are_put_together,
         halves_that_did_not_meet_save_parts_that_are_put_together, a_job_that_is_lost_again_and_again_ends,
         nodes_of_other_machines_begin_again_too, a_job_begins_with_few_nodes_and_takes_up_a_late_one,
         a_node_that_is_lost_while_costs_are_measured_was_never_there, too_few_nodes_save_and_end,
         a_spare_node_stands_by_and_takes_the_place_of_a_lost_one]


if __name__ == "__main__":
    sys.exit(run_on_bench(CASES, seed=1))
