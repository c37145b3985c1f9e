"""One slow shape, live: where pictures of one size take ten times as long as their profile says, adaptive correction learns
that from measured parts and plans around these pictures.

    slow_shapes.py BINARY [POLICY...]       prints `N passed, M failed, K skipped` last

Each policy trains twice on the same samples, with and without the correction. Plans have to show it in one of two ways:
fewer rows beside a slow picture, or a shorter pipeline with their microbatches, at the same speed for both runs. Both are 1
where nothing is learned. What is learned is measured, on a machine that others use too: a policy is tried again.

Until 27 November 2026 a run failed where steps were more than 0.98 as long, or those without a slow picture more than 1.08;
CI missed the first with `auto`, by 0.98 in two digits where plans had 0.83 of the rows. Until the 30th it failed by the rows
alone; CI missed that with `dflop` three times, by 0.95 to 0.98 of the rows where steps took 0.96: the hook sleeps by what a
part computes, and on a busy machine, where parts wait too, a slow picture takes three times as long as others, not ten.
Since then 0.98 is a bound again, beside that on rows, of which one has to hold; 1.08 rests on rates measured beside other
programs and has been a goal since the 27th, printed beside what came out.
"""

import filecmp
import json
import os
import pathlib
import random
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.recorded_runs import read_iterations, read_lines  # noqa: E402
from tests.support.run_cases import Failure, run_cases  # noqa: E402

POLICIES = ["dflop", "deferral", "auto"]
STEPS, LEARNED, BATCH = 24, 8, 16
STAGES = 3
PATCH, SLOW, FACTOR = 14, 12, 10   # Pixels; patches along a side.
OTHERS = [4, 6, 7, 10, 15, 16]     # None is filed with the slow one: classes have 64 rows.
SLOW_A_BATCH = [2, 3, 3]           # Fewer than microbatches.
FEWER = 0.93                       # Of the rows beside a slow picture without the correction, which is 1 where nothing is learned.
TRIES = 3
SHORTER = 0.98                     # Of the steps' length.
OTHERS_MAX = 1.08                  # A goal, printed: of the length of steps without a slow picture.
JOB = """
[job]
name = "slow-shapes"

[modules.vision]
kind = "encoder"
family = "qwen2-vl"
config = { depth = 4, embed_dim = 128, num_heads = 4, hidden_size = 128 }
[modules.vision_projector]
kind = "projector"
[modules.llm]
kind = "llm"
config = { num_hidden_layers = 2, hidden_size = 128, intermediate_size = 256, num_attention_heads = 4, \
num_key_value_heads = 2, vocab_size = 2048 }

[[parallel.pipelines]]
stages = [{ node = 0, vision = [0, 3] }, { node = 1, vision = [3, 6] }, { node = 2, llm = "all" }]

[[data.sources]]
json = "samples.json"
[data]
max_pixels = 100352
shuffle = false

[train]
steps = 24
global_batch_size = 16
microbatches = 4
[scheduler]
schedule = "split-1f1b"
[cluster]
local_nodes = 3
"""


def write_picture(path, side, shade):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    rows = b"".join(b"\0" + bytes((shade + x + y) % 256 for x in range(3 * side)) for y in range(side))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
                     + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def write_data(folder):
    """Of sixteen samples two or three have the slow picture, of every fourth batch none."""
    draw = random.Random(5)
    for side in [SLOW, *OTHERS]:
        write_picture(folder / f"{side}.png", PATCH * side, side)
    samples, sides = [], []
    for step in range(STEPS):
        slow = 0 if step % 4 == 3 else draw.choice(SLOW_A_BATCH)
        batch = [SLOW] * slow + [draw.choice(OTHERS) for _ in range(BATCH - slow)]
        draw.shuffle(batch)
        sides += batch
    for i, side in enumerate(sides):
        samples.append({"id": f"{side}-{i}", "image": f"{side}.png", "conversations": [
            {"from": "human", "value": "<image>\nwhat?"}, {"from": "gpt", "value": "this. " * 20}]})
    (folder / "samples.json").write_text(json.dumps(samples), encoding="utf-8")
    (folder / "job.toml").write_text(JOB, encoding="utf-8")


def command(binary, folder, *arguments):
    words = [str(binary), arguments[0], str(folder / "job.toml"), *arguments[1:]]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def finish(process):
    output = process.communicate(timeout=600)[0]
    if process.returncode != 0:
        raise Failure(f"{' '.join(process.args)}\nexit {process.returncode}\n{output[-1500:]}")


def train(binary, folder, policy, correction, name, *flags):
    slow = f'debug.slow_shapes=[{{module="vision",min_rows={SLOW**2},max_rows={SLOW**2},factor={FACTOR},per_sample=true}}]'
    return command(binary, folder, "train", f"balancer.policy={policy}", slow,
                   f"balancer.adaptive_correction={str(correction).lower()}", f"job.run_dir={folder / name}",
                   "train.dump_gradients=true", *flags)


def microbatches_of(iteration, side):
    """Of each microbatch, of each of its parts: rows of each picture."""
    rows = [int(identity.split("-")[0]) ** 2 for identity in iteration["ids"]]
    return [[[rows[sample] for sample in part] for part in microbatch] for microbatch in iteration["pipelines"][0][side]]


def units_of_steps(run):
    """Per step after learning: of each stage, how much each of its microbatches holds. Rows, the slow ones as often as
    they are slow, for the encoder's stages; samples, which have the same text, for the llm."""
    units = {}
    for line in read_iterations(run):
        if line["step"] <= LEARNED:
            continue
        encoder, llm = ([sum(parts, []) for parts in microbatches_of(line, side)] for side in ("encoder", "llm"))
        slowed = [sum(rows * (FACTOR if rows == SLOW**2 else 1) for rows in microbatch) for microbatch in encoder]
        units[line["step"]] = [slowed] * (STAGES - 1) + [[len(microbatch) for microbatch in llm]]
    return units


def ms_per_unit(run, units):
    """Of each stage: its mean processor time; what the hook slept through has none."""
    spent, held = [0] * STAGES, [0] * STAGES
    for event in json.loads((run / "trace.json").read_text(encoding="utf-8")):
        if event["ph"] == "X" and event.get("cat") == "compute" and event["args"]["step"] in units:
            spent[event["args"]["stage_id"]] += event["tdur"] / 1e3
    for line in read_iterations(run):
        if line["step"] in units:
            rows = sum(sum(sum(parts, [])) for parts in microbatches_of(line, "encoder"))
            held = [held[0] + rows, held[1] + rows, held[2] + len(line["ids"])]
    return [ms / number for ms, number in zip(spent, held)]


def length_ms(microbatches, rates):
    """Of a step: microbatch after microbatch through all stages, each as soon as stage and microbatch are free. The same
    rates for both runs, so that only their plans differ."""
    free = [0] * STAGES
    for number in range(max(map(len, microbatches))):
        for stage, held in enumerate(microbatches):
            own = held[number] * rates[stage] if number < len(held) else 0
            free[stage] = max(free[stage], free[stage - 1] if stage else 0) + own
    return free[-1]


def beside(run):
    """Mean rows of the other pictures in a slow one's microbatch, once shapes are learned."""
    rows = [sum(microbatch) - SLOW**2 for line in read_iterations(run) if line["step"] > LEARNED
            for microbatch in (sum(parts, []) for parts in microbatches_of(line, "encoder"))
            for own in microbatch if own == SLOW**2]
    return statistics.mean(rows)


def without_slow(run):
    """Step -> what the plan does with the encoder's samples, of batches without a slow picture."""
    return {line["step"]: line["pipelines"][0]["encoder"] for line in read_iterations(run)
            if line["step"] > LEARNED and not any(SLOW**2 in part for parts in microbatches_of(line, "encoder")
                                                  for part in parts)}


def replay(binary, folder, policy, run):
    """A corrected run is repeated to the bit from its own record."""
    finish(train(binary, folder, policy, True, f"{run.name}-again", "--reference", "--microbatches", str(run)))
    for file in ("model/model.safetensors", "gradients/step-1.safetensors"):
        if not filecmp.cmp(run / file, folder / f"{run.name}-again" / file, shallow=False):
            raise Failure(f"{file} of the run differs from that of its record")


def check(binary, folder, policy):
    runs = {correction: folder / f"{policy}-{correction}" for correction in (False, True)}
    for correction, run in runs.items():  # Not at once: what is measured is what others leave.
        finish(train(binary, folder, policy, correction, run.name))
    if not read_lines(runs[True] / "metrics.jsonl")[-1]["corrected_shapes"]:
        raise Failure("no shape was learned")
    units = [units_of_steps(runs[correction]) for correction in (False, True)]
    rates = ms_per_unit(runs[False], units[0])
    before, after = (sum(length_ms(step, rates) for step in run.values()) for run in units)
    share = after / before
    steps_without = without_slow(runs[False]).keys()
    beyond = sum(length_ms(units[1][step], rates) for step in steps_without) / \
        sum(length_ms(units[0][step], rates) for step in steps_without)
    rows = [beside(runs[correction]) for correction in (False, True)]
    others = [without_slow(runs[correction]) for correction in (False, True)]
    kept = sum(others[0][step] == others[1][step] for step in others[0])
    told = f"steps take {share:.3f} of what they took (bound {SHORTER}, or {FEWER} of the rows); rows beside a slow picture {rows[0]:.0f}, then {rows[1]:.0f}; " \
           f"steps without one {beyond:.3f} (goal {OTHERS_MAX}), {kept} of {len(others[0])} of their plans as they were"
    if rows[1] > FEWER * rows[0] and share > SHORTER:
        raise Failure(f"plans keep loading the slow parts: {told}")
    # Noise moves a sample or two of other steps; that shapes keep their weight to the bit is for the unit tests.
    print(f"{policy}: {told}", flush=True)
    if policy == "dflop":
        replay(binary, folder, policy, runs[True])


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()

    def case(policy):
        def run():
            for left in reversed(range(TRIES)):
                try:
                    return check(binary, folder, policy)
                except Failure as failure:
                    if not left:
                        raise
                    print(f"{policy}, tried again: {failure}", flush=True)
                    for run in folder.glob(f"{policy}-*"):
                        shutil.rmtree(run)
        run.__name__ = f"{policy}_plans_around_a_slow_shape"
        return run

    with tempfile.TemporaryDirectory(prefix="troupe-slow-shapes-") as name:
        folder = pathlib.Path(name)
        write_data(folder)
        finish(command(binary, folder, "profile", f"job.run_dir={folder}/any", "--budget", "4"))
        return run_cases([case(policy) for policy in sys.argv[2:] or POLICIES], lambda run: run())


if __name__ == "__main__":
    sys.exit(main())
