"""Memory of whole runs: what a device holds is counted, and plans keep within what devices have.

    memory.py BINARY [CASE...]        prints `N passed, M failed, K skipped` last
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from recorded_runs import read_iterations, read_lines
from run_cases import expect, run_cases

MODEL = """
[job]
name = "memory"
[modules.vision]
kind = "encoder"
family = "qwen2-vl"
config = { depth = 1, embed_dim = 16, num_heads = 2, hidden_size = 24 }
freeze = true
[modules.vision_projector]
kind = "projector"
[modules.audio]
kind = "encoder"
family = "whisper"
config = { encoder_layers = 1, d_model = 16, encoder_attention_heads = 2, encoder_ffn_dim = 48 }
freeze = true
[modules.audio_projector]
kind = "projector"
[[data.sources]]
json = "data/samples.json"
[data]
max_pixels = 25088
[train]
steps = STEPS
global_batch_size = 32
microbatches = 8
"""

# The llm's one block is alone on its device, and holds more per row than the embedding and the head hold on theirs: its
# rows, q and attention, and little between. Of what it holds the gradient that came in is an eighth.
ONE_BLOCK = MODEL.replace("STEPS", "8") + """
[modules.llm]
kind = "llm"
config = { num_hidden_layers = 1, hidden_size = 512, intermediate_size = 16, num_attention_heads = 4, num_key_value_heads = 1 }
[[parallel.pipelines]]
stages = [
  { node = 0, vision = "all", audio = "all" },
  { node = 1, llm = [0, 1] },
  { node = 2, llm = [1, 2] },
  { node = 3, llm = [2, 3] },
]
[scheduler]
schedule = "zero-bubble" # Weight gradients wait, and all that a part holds waits with them.
max_in_flight = 1
[cluster]
nodes = 4
local_nodes = 4
"""

# Two stages: the first one has two microbatches in flight, so that one may take half of what its device has room for.
TWO_DEEP = MODEL.replace("STEPS", "1") + """
[modules.llm]
kind = "llm"
config = { num_hidden_layers = 4, hidden_size = 64, intermediate_size = 256, num_attention_heads = 2, num_key_value_heads = 1 }
[[parallel.pipelines]]
stages = [
  { node = 0, vision = "all", audio = "all" },
  { node = 1, llm = [0, 3] },
  { node = 2, llm = [3, 6] },
]
[cluster]
nodes = 3
local_nodes = 3
"""

# Encoders and the llm on one device, in phases; encoders keep more than the llm.
COLOCATED = MODEL.replace("STEPS", "3").replace("freeze = true\n", "").replace("depth = 1, embed_dim = 16", "depth = 4, embed_dim = 32") + """
[modules.llm]
kind = "llm"
config = { num_hidden_layers = 1, hidden_size = 16, intermediate_size = 16, num_attention_heads = 2, num_key_value_heads = 1 }
[[parallel.pipelines]]
stages = [{ node = 0, vision = "all", audio = "all" }, { node = 0, llm = "all" }]
[scheduler]
schedule = "three-phase"
[cluster]
nodes = 1
local_nodes = 1
"""


# Texts alone, in their order; a device has room for state and some short ones.
TEXTS = """
[job]
name = "memory"
[modules.llm]
kind = "llm"
config = { num_hidden_layers = 4, hidden_size = 64, intermediate_size = 256, num_attention_heads = 2, num_key_value_heads = 1 }
[[data.sources]]
json = "words.json"
[data]
shuffle = false
[train]
steps = 4
global_batch_size = 8
microbatches = 4
[[parallel.pipelines]]
stages = [{ node = 0, llm = [0, 3] }, { node = 1, llm = [3, 6] }]
[cluster]
nodes = 2
local_nodes = 2
device_memory_gib = 0.015
"""


class Bench:
    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder
        self.troupe("data", "make", "data")
        for name, text in (("one-block", ONE_BLOCK), ("two-deep", TWO_DEEP), ("colocated", COLOCATED)):
            (folder / f"{name}.toml").write_text(text, encoding="utf-8")
            self.troupe("profile", f"{name}.toml", "--budget", "3", "--out", f"{name}.json")

    def start(self, *words):
        return subprocess.run([str(self.binary), *map(str, words)], cwd=self.folder, capture_output=True, text=True,
                              check=False, timeout=120)

    def troupe(self, *words):
        ended = self.start(*words)
        expect(ended.returncode == 0, f"troupe {' '.join(map(str, words))}: exit {ended.returncode}\n{ended.stderr[-800:]}")
        return ended.stdout

    def train(self, job, name, *settings):
        run = self.folder / name
        return run, self.start("train", f"{job}.toml", f"scheduler.profile={job}.json", f"job.run_dir={run}", *settings)


def received_gradients_are_memory_of_their_device(bench):
    """A plan counts what its devices will hold; the devices count what they hold. Both by themselves."""
    run, ended = bench.train("one-block", "one-block")
    expect(ended.returncode == 0, f"exit {ended.returncode}\n{ended.stderr[-800:]}")
    shares = [step["activation_bytes"] / step["promised_activation_bytes"] for step in read_lines(run / "metrics.jsonl")]
    print(f"  {min(shares):.3f} to {max(shares):.3f} of what plans promised")
    # Rows that come late are not there when most is held: a step may see less than its plan promised.
    expect(len(shares) == 8 and 0.97 < max(shares) < 1.03, f"shares of the promised bytes: {shares}")


def refused_in_order(bench, memory_gib):
    """Work of the largest llm microbatch of samples in their order, and the cap, where that is above it."""
    run, ended = bench.train("two-deep", f"refused-{memory_gib:.6f}", "balancer.policy=in-order",
                             f"cluster.device_memory_gib={memory_gib}")
    said = re.search(r"the largest LLM microbatch of 'in-order' has ([\d.]+) ms, above the cap of ([\d.]+) ms", ended.stderr)
    metrics = run / "metrics.jsonl"
    says_so = "cluster.device_memory_gib: the largest" in ended.stderr and "fix: raise it or train.microbatches" in ended.stderr
    expect(ended.returncode == 2 and said and says_so, f"{memory_gib} GiB: exit {ended.returncode}\n{ended.stderr[-800:]}")
    expect(not metrics.exists() or not read_lines(metrics), "a step was trained")
    return float(said[1]), float(said[2])


def llm_microbatches_are_no_larger_than_their_devices_have_room_for(bench):
    """Where devices are small, `auto` finds microbatches that fit, and a policy that finds none is refused before a step."""
    least, more = 0.004, 0.005
    largest_ms, least_ms = refused_in_order(bench, least)
    slope = (refused_in_order(bench, more)[1] - least_ms) / (more - least)  # Of the cap, which is linear in memory.
    state_gib = least - least_ms / slope  # The cap is 0 where state alone fits.
    # The largest one in order fits, but not as often as it is in flight; others of the same samples do.
    tight_gib = state_gib + 0.92 * largest_ms / slope
    refused_in_order(bench, tight_gib)
    run, ended = bench.train("two-deep", "tight", "balancer.policy=auto", f"cluster.device_memory_gib={tight_gib}")
    expect(ended.returncode == 0, f"exit {ended.returncode}\n{ended.stderr[-800:]}")
    room = (tight_gib - state_gib) * 2**30
    held = [step["activation_bytes"] for step in read_lines(run / "metrics.jsonl")]
    microbatches = [sum(map(len, parts)) for parts in read_iterations(run)[0]["pipelines"][0]["llm"]]
    print(f"  samples per llm microbatch {microbatches}, {max(held) / 1e6:.2f} MB on the fullest device, where {room / 1e6:.2f} MB are")
    expect(max(held) <= 1.02 * room, f"more than {room} bytes were held: {held}")


def what_is_recomputed_is_not_held(bench):
    """Of the llm's blocks the rows between them are left, and that is what plans count."""
    held = {}
    for recompute in (False, True):
        run, ended = bench.train("two-deep", f"recompute-{recompute}", f"train.recompute={str(recompute).lower()}", "train.steps=4")
        expect(ended.returncode == 0, f"exit {ended.returncode}\n{ended.stderr[-800:]}")
        steps = read_lines(run / "metrics.jsonl")
        held[recompute] = max(step["activation_bytes"] for step in steps)
        shares = [step["activation_bytes"] / step["promised_activation_bytes"] for step in steps]
        print(f"  recomputed: {recompute}: {held[recompute] / 1e6:.2f} MB, {min(shares):.3f} to {max(shares):.3f} of what plans promised")
        expect(0.9 < max(shares) < 1.05, f"shares of the promised bytes: {shares}")
    expect(held[True] < 0.6 * held[False], f"bytes held with and without recomputing: {held}")
    refused = bench.start("validate", "one-block.toml", "train.recompute=true")
    expect(refused.returncode == 2 and "train.recompute: 'zero-bubble' has weight gradients wait" in refused.stdout + refused.stderr,
           f"exit {refused.returncode}\n{refused.stdout}{refused.stderr}")


def encoder_forwards_in_a_row(run):
    """Most forwards of encoders without a backward of one between."""
    with open(run / "trace.json", encoding="utf-8") as file:
        events = sorted((event for event in json.load(file) if event.get("cat") == "compute"), key=lambda event: event["ts"])
    kinds = "".join("F" if event["args"]["kind"] == "forward" else "B" for event in events if event["args"]["stage_id"] == 0)
    return max(map(len, kinds.split("B")))


def what_is_offloaded_is_in_host_memory(bench):
    """While the llm runs, encoders leave it the device; and where memory is short, more of their forwards go ahead."""
    held, whole = {}, None
    for what in ("off", "activations"):
        run, ended = bench.train("colocated", f"offload-{what}", f"scheduler.offload_encoders={what}")
        expect(ended.returncode == 0, f"exit {ended.returncode}\n{ended.stderr[-800:]}")
        steps = read_lines(run / "metrics.jsonl")
        whole = whole or run
        held[what] = max(step["activation_bytes"] for step in steps)
        shares = [step["activation_bytes"] / step["promised_activation_bytes"] for step in steps]
        print(f"  offload_encoders = {what}: {held[what] / 1e6:.2f} MB, {min(shares):.3f} to {max(shares):.3f} of what plans promised; "
              f"{max(step.get('offloaded_bytes', 0) for step in steps) / 1e6:.2f} MB in host memory, {steps[-1]['offload_ms']:.2f} ms for it")
        expect(0.9 < max(shares) < 1.05, f"shares of the promised bytes: {shares}")
        expect(all((step.get("offloaded_bytes", 0) > 0) == (what != "off") for step in steps), "host memory")
        expect(encoder_forwards_in_a_row(run) == 8, "not all forwards of encoders come first")
    expect(held["activations"] < 0.5 * held["off"], f"bytes held with and without offloading: {held}")
    # Values, gradients and two moments of each; and room for some of the encoders' microbatches beside the llm's one.
    gib = (4 * (whole / "model" / "model.safetensors").stat().st_size + 0.65 * held["off"]) / 2**30
    ahead = {}
    for what in ("off", "activations"):
        run, ended = bench.train("colocated", f"short-{what}", f"scheduler.offload_encoders={what}", f"cluster.device_memory_gib={gib}")
        expect(ended.returncode == 0, f"exit {ended.returncode}\n{ended.stderr[-800:]}")
        ahead[what] = encoder_forwards_in_a_row(run)
    print(f"  with {gib:.4f} GiB {ahead} forwards of encoders in a row")
    expect(ahead["off"] < 6 and ahead["activations"] == 8, f"forwards of encoders in a row: {ahead}")
    refused = bench.start("validate", "two-deep.toml", "scheduler.offload_encoders=activations")
    expect(refused.returncode == 2 and "scheduler.offload_encoders: '1f1b' has no phases" in refused.stdout + refused.stderr,
           f"exit {refused.returncode}\n{refused.stdout}{refused.stderr}")


# Window: the next batch has no plan on the layout that is up
def a_batch_without_room_anywhere_leaves_a_checkpoint(bench):
    """On two nodes a long text has room neither in a pipeline of both nor in one of each; what came before it is saved, and the text named."""
    samples = [{"id": f"s{i}", "conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "ho"}]} for i in range(32)]
    samples[20] = {"id": "long", "conversations": [{"from": "human", "value": "a" * 3400}, {"from": "gpt", "value": "ho"}]}  # Of the third step.
    (bench.folder / "words.json").write_text(json.dumps(samples), encoding="utf-8")
    (bench.folder / "texts.toml").write_text(TEXTS, encoding="utf-8")
    bench.troupe("profile", "texts.toml", "--budget", "1", "--out", "texts.json")
    run, ended = bench.train("texts", "texts")
    expect(ended.returncode == 2, f"exit {ended.returncode}\n{ended.stderr[-1500:]}")
    for words in ("of the batch's samples 'long' (34", " has least room: alone it keeps ", "no other layout of the 2 nodes that are there has a plan for step 3",
                  "data.max_seq_len = 34", "step 2 is saved: the same command with --resume goes on from there"):
        expect(words in ended.stderr, f"'{words}' is not said:\n{ended.stderr[-1500:]}")
    expect([step["step"] for step in read_lines(run / "metrics.jsonl")] == [1, 2], "steps before it")
    run, ended = bench.train("texts", "texts", "cluster.device_memory_gib=1", "--resume")
    expect(ended.returncode == 0, f"exit {ended.returncode}\n{ended.stderr[-1500:]}")
    expect([step["step"] for step in read_lines(run / "metrics.jsonl")] == [1, 2, 3, 4], "steps in all")


def main():
    binary, wanted = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory(prefix="troupe-memory-") as folder:
        bench = Bench(binary, pathlib.Path(folder))
        return run_cases([case for case in CASES if not wanted or case.__name__ in wanted], lambda case: case(bench))


CASES = [received_gradients_are_memory_of_their_device, llm_microbatches_are_no_larger_than_their_devices_have_room_for,
         what_is_recomputed_is_not_held, what_is_offloaded_is_in_host_memory, a_batch_without_room_anywhere_leaves_a_checkpoint]

if __name__ == "__main__":
    sys.exit(main())
