"""What a run's trace must show: that backwards of parts run apart, and that weight gradients fill idle gaps.

    traces.py BINARY [CASE...]        prints `N passed, M failed, K skipped` last

Trains a small model on made data, on one node per stage, and reads what the devices did. Judged are the order of
events, who sent what when, and processor time: all of them hold on a busy machine too.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from recorded_runs import read_iterations, read_lines
from run_cases import Failure, expect, run_cases

STEPS = 6
ENCODERS, LLM_BEGIN, LLM_END = 0, 1, 2  # Stages; each is on a node of its own.

# The llm's second stage has three times the work of its first one, which therefore waits for it in any schedule.
JOB = """
[job]
name = "traces"
[modules.vision]
kind = "encoder"
family = "qwen2-vl"
config = { depth = 2, embed_dim = 64, num_heads = 4, hidden_size = 96 }
[modules.vision_projector]
kind = "projector"
[modules.audio]
kind = "encoder"
family = "whisper"
config = { encoder_layers = 1, d_model = 64, encoder_attention_heads = 4, encoder_ffn_dim = 128 }
[modules.audio_projector]
kind = "projector"
[modules.llm]
kind = "llm"
config = { num_hidden_layers = 4, hidden_size = 128, intermediate_size = 512 }
[[parallel.pipelines]]
stages = [
  { node = 0, vision = "all", audio = "all" },
  { node = 1, llm = [0, 2] },
  { node = 2, llm = [2, 6] },
]
[[data.sources]]
json = "data/samples.json"
[data]
max_pixels = 25088
[train]
steps = STEPS
global_batch_size = 16
microbatches = 4
[cluster]
nodes = 3
local_nodes = 3
"""


class Run:
    """A finished run: its plans by step, and its trace."""

    def __init__(self, folder):
        self.plans = {plan["step"]: plan["pipelines"][0] for plan in read_iterations(folder)}
        self.metrics = read_lines(folder / "metrics.jsonl")
        trace = json.loads((folder / "trace.json").read_text(encoding="utf-8"))
        self.slices = sorted((event for event in trace if event["ph"] == "X"), key=lambda event: event["ts"])
        arrows = [event for event in trace if event["ph"] in "sf"]
        self.begins = {event["id"]: event["ts"] for event in arrows if event["ph"] == "s"}
        self.ends = {(event["pid"], event["ts"]): event["id"] for event in arrows if event["ph"] == "f"}

    def of(self, stage, step, *kinds):
        """Slices of a stage in a step, in the order in which its device ran them."""
        return [event for event in self.slices if event["args"].get("stage_id") == stage
                and event["args"]["step"] == step and event["args"]["kind"] in kinds]

    def sent(self, receive):
        """When the other side sent what this slice received, in microseconds of the trace."""
        last_ns = round(1000 * (receive["ts"] + receive["dur"])) - 1
        for (pid, ts), arrow in self.ends.items():
            if pid == receive["pid"] and abs(round(1000 * ts) - last_ns) <= 1:
                return self.begins[arrow]
        raise Failure(f"no arrow ends in {receive}")


class Bench:
    """Runs by schedule and policy; each is trained once, when a case first asks for it."""

    def __init__(self, binary, folder):
        self.binary, self.folder, self.runs = binary, folder, {}
        (folder / "job.toml").write_text(JOB.replace("STEPS", str(STEPS)), encoding="utf-8")
        self.troupe("data", "make", folder / "data")
        self.troupe("profile", folder / "job.toml", "--budget", "3", "--out", folder / "profile.json")

    def troupe(self, *words):
        ended = subprocess.run([str(self.binary), *map(str, words)], cwd=self.folder, capture_output=True, text=True,
                               check=False, timeout=300)
        expect(ended.returncode == 0, f"troupe {words[0]}: exit {ended.returncode}\n{ended.stderr[-800:]}")

    def run(self, schedule, policy):
        if (schedule, policy) not in self.runs:
            folder = self.folder / f"{schedule}-{policy}"
            self.troupe("train", "job.toml", f"job.run_dir={folder}", f"scheduler.schedule={schedule}",
                        f"balancer.policy={policy}", "scheduler.profile=profile.json")
            self.runs[schedule, policy] = Run(folder)
        return self.runs[schedule, policy]


def place(event):
    return event["args"]["microbatch"], event["args"]["part"]


def end(event):
    return event["ts"] + event["dur"]


def processor_us(events):
    return sum(event.get("tdur", 0) for event in events)


def two_part_microbatches(run):
    """(step, microbatch) of the encoders' microbatches that have two parts."""
    return [(step, number) for step, plan in run.plans.items() for number, parts in enumerate(plan["encoder"])
            if len(parts) == 2]


# ---- split backward -------------------------------------------------------------------------------


def backwards_of_a_microbatchs_parts_run_apart(bench):
    run = bench.run("split-1f1b", "deferral")
    split = two_part_microbatches(run)
    deferred = sum(line["deferred_samples"] for line in run.metrics)
    expect(deferred > 0, "no sample was deferred: this data set shows nothing")
    expect(split, f"{deferred} samples were deferred and no microbatch has two parts")
    ahead = 0
    for step, number in split:
        backwards = {place(event): event for event in run.of(ENCODERS, step, "backward")}
        expect({(number, 0), (number, 1)} <= backwards.keys(),
               f"step {step}: microbatch {number} has backwards of {sorted(backwards)} only")
        for receive in run.of(ENCODERS, step, "receive_gradient"):
            microbatch, part = place(receive)
            if microbatch == number and end(backwards[number, 1 - part]) <= run.sent(receive):
                ahead += 1
    print(f"  {len(split)} microbatches of two parts, {ahead} gradients sent after the other part's backward had ended")
    expect(ahead > 0, "every part waited for the gradients of its microbatch's other part")


def without_split_backward_a_microbatch_waits_for_all_its_gradients(bench):
    run = bench.run("1f1b", "deferral")
    expect(sum(line["deferred_samples"] for line in run.metrics) > 0, "no sample was deferred")
    expect(not two_part_microbatches(run), "1F1B has no parts")
    for step in run.plans:
        backwards = {place(event): event for event in run.of(ENCODERS, step, "backward")}
        for receive in run.of(ENCODERS, step, "receive_gradient"):
            expect(end(receive) <= end(backwards[place(receive)]), f"step {step}: a gradient came after its backward")


# ---- zero bubble ----------------------------------------------------------------------------------


def weight_gradients_are_real_work_of_their_own(bench):
    run = bench.run("zero-bubble", "in-order")
    for stage in (LLM_BEGIN, LLM_END):
        shares = []
        for step in run.plans:
            inputs, weights = run.of(stage, step, "backward_input"), run.of(stage, step, "backward_weight")
            expect(sorted(map(place, inputs)) == sorted(map(place, weights)), f"step {step}: not one W for each I")
            last_input = {place(event): end(event) for event in inputs}
            expect(all(event["ts"] >= last_input[place(event)] for event in weights), f"step {step}: a W before its I")
            shares.append(processor_us(weights) / processor_us(inputs))
        share = statistics.median(shares)
        print(f"  stage {stage}: W takes {100 * share:.0f} % of I's processor time")
        # A block of linear layers owes as many products for weights as for inputs; I has attention and norms besides.
        expect(share > 0.15, f"stage {stage}: W takes {100 * share:.1f} % of I's processor time: it does nothing")


def neighbours(compute, kinds):
    """Pairs of compute slices that follow one another in a device's order, both of these kinds."""
    return [(before, after) for before, after in zip(compute, compute[1:])
            if before["args"]["kind"] in kinds and after["args"]["kind"] in kinds]


def between(events, before, after):
    return [event for event in events if end(before) <= event["ts"] and end(event) <= after["ts"]]


def weight_gradients_fill_gaps_that_1f1b_leaves_idle(bench):
    plain, filled = bench.run("1f1b", "in-order"), bench.run("zero-bubble", "in-order")
    expect(plain.plans.keys() == filled.plans.keys() and len(plain.plans) == STEPS, "both runs have all steps")
    idle_share, gaps, work = [], 0, []
    for step in list(plain.plans)[1:]:  # The first use of an operator takes its time.
        expect(plain.plans[step]["llm"] == filled.plans[step]["llm"], f"step {step}: another batch")
        backwards = plain.of(LLM_BEGIN, step, "forward", "backward")
        inside = filled.of(LLM_BEGIN, step, "backward_weight")
        inputs = {place(event): event for event in filled.of(LLM_BEGIN, step, "backward_input")}
        for before, after in neighbours(backwards, {"backward"}):
            # Nothing is left to compute here in 1F1B: the device passes gradients on and waits for the next ones.
            others = between(plain.of(LLM_BEGIN, step, "receive_gradient", "send_gradient", "receive", "send"),
                             before, after)
            length = after["ts"] - end(before)
            idle_share.append(1 - processor_us(others) / length if length > 0 else 0)
            gaps += 1
            work.append(processor_us(between(inside, inputs[place(before)], inputs[place(after)])))
    expect(gaps > 0, "1F1B leaves no gap between backwards")
    idle = statistics.median(idle_share)
    expect(idle > 0.5, f"1F1B computes in its gaps: idle for {100 * idle:.0f} % of them")
    least_us = 0.15 * statistics.median(processor_us([event]) for step in list(filled.plans)[1:]
                                        for event in filled.of(LLM_BEGIN, step, "backward_input"))
    real = sum(us > least_us for us in work)
    print(f"  1F1B's device is idle for {100 * idle:.0f} % of its {gaps} gaps, zero bubble fills {real}")
    expect(2 * real >= gaps, f"W did real work in {real} of {gaps} gaps that 1F1B leaves idle")


CASES = [backwards_of_a_microbatchs_parts_run_apart, without_split_backward_a_microbatch_waits_for_all_its_gradients,
         weight_gradients_are_real_work_of_their_own, weight_gradients_fill_gaps_that_1f1b_leaves_idle]


def main():
    binary, wanted = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory(prefix="troupe-traces-") as folder:
        bench = Bench(binary, pathlib.Path(folder))
        return run_cases([case for case in CASES if not wanted or case.__name__ in wanted], lambda case: case(bench))


if __name__ == "__main__":
    sys.exit(main())
