"""The models that llama-1b and curve-bf16 train, their jobs for our program, and the arithmetic of a token."""

import json
import random

SIZES = {
    "1b": dict(num_hidden_layers=16, hidden_size=2048, intermediate_size=8192, num_attention_heads=32, num_key_value_heads=8,
               vocab_size=128256, rope_theta=500000.0, rms_norm_eps=1e-5),
    "curve": dict(num_hidden_layers=4, hidden_size=256, intermediate_size=704, num_attention_heads=4, num_key_value_heads=2,
                  vocab_size=320, rope_theta=10000.0, rms_norm_eps=1e-5),
    "small": dict(num_hidden_layers=2, hidden_size=128, intermediate_size=256, num_attention_heads=4, num_key_value_heads=2,
                  vocab_size=512, rope_theta=500000.0, rms_norm_eps=1e-5),
}
TOKENS = {"1b": 2048, "curve": 256, "small": 128}  # Of a sample.
SAMPLES_PER_STEP, MICROBATCHES = 8, 2
MEASURED_STEPS = 8
# Ids that occur: a byte is a token in our samples.
IDS_USED = 320
# Tokens of a sample that are not its text: of the question "go", and between turns.
TOKENS_AROUND = 7
PEAK_TFLOPS = 989.0  # bf16, dense, of an H100 SXM.
WORDS = ("the model stage actor plan layer token batch sends waits for a row of data and then trains").split()


# Of a parameter, by AdamW and by the norm of gradients before it: the norm reads 4 bytes of the gradient; AdamW reads master, two moments and
# gradient, and writes master, moments, zeros over the gradient and the parameter in bf16.
UPDATE_BYTES = 4 + 16 + 18
# TB/s of a GPU's memory, by its datasheet; by what nvidia-smi calls it.
MEMORY_TB_PER_S = {"H100 80GB HBM3": 3.35, "H200": 4.8}


def layer_matrices(sizes):
    """Elements of the matrices of one layer."""
    hidden = sizes["hidden_size"]
    head = hidden // sizes["num_attention_heads"]
    attention = hidden * head * (2 * sizes["num_attention_heads"] + 2 * sizes["num_key_value_heads"])
    return attention + 3 * hidden * sizes["intermediate_size"]


def parameters_of(sizes):
    """Of a model of these sizes: head and embedding are one matrix."""
    hidden = sizes["hidden_size"]
    return sizes["num_hidden_layers"] * (layer_matrices(sizes) + 2 * hidden) + sizes["vocab_size"] * hidden + hidden


def parameters(size):
    return parameters_of(SIZES[size])


def memory_tb_per_s(gpu):
    """Of the GPU that nvidia-smi calls so; None: it stands in no table here."""
    return next((speed for name, speed in MEMORY_TB_PER_S.items() if name in gpu), None)


def flops_per_token(size):
    """Forward and backward, as training usually counts: matrices, and pairs that see each other; look-ups and norms are left out."""
    sizes, tokens = SIZES[size], TOKENS[size]
    layers, hidden, pairs = sizes["num_hidden_layers"], sizes["hidden_size"], (tokens + 1) / 2
    return 6 * (layers * layer_matrices(sizes) + hidden * sizes["vocab_size"]) + 12 * layers * hidden * pairs


def text_of(length, rng):
    text = ""
    while len(text) < length:
        text += rng.choice(WORDS) + " "
    return text[:length]


def texts_of(size, count):
    """Answers of `count` samples, each of exactly TOKENS[size] tokens with what is around them."""
    rng = random.Random(1)
    return [text_of(TOKENS[size] - TOKENS_AROUND, rng) for _ in range(count)]


def lines_of(values):
    """A table's keys."""
    return "\n".join(f"{key} = {value}" for key, value in values.items())


def write_toml(folder, name, encoders, llm, data, stage, batch, lr=1e-4, min_lr=0.0):
    """Leaves folder/job.toml, which trains folder/samples.json on one node. `encoders`: tables of modules before the llm; `llm`: lines of its
    own, and its sizes; `data`: lines of [data]; `stage`: of modules, with all of their layers; `batch`: steps, samples and microbatches."""
    module, sizes = llm
    steps, samples, microbatches = batch
    layers = "".join(f', {part} = "all"' for part in stage)
    (folder / "job.toml").write_text(f'''[job]
name = "{name}"
run_dir = "{folder}/run"
{encoders}
[modules.llm]
kind = "llm"
{module}
[modules.llm.config]
{lines_of(sizes)}
tie_word_embeddings = true
[[parallel.pipelines]]
stages = [{{ node = 0{layers} }}]
[[data.sources]]
json = "{folder}/samples.json"
[data]
{data}
[train]
steps = {steps}
global_batch_size = {samples}
microbatches = {microbatches}
dtype = "bf16"
[optimizer]
lr = {lr}
min_lr = {min_lr}
[cluster]
local_nodes = 1
device_tflops = {PEAK_TFLOPS}
''', encoding="utf-8")
    return folder / "job.toml"


def write_job(folder, size, steps, count=64, module="", data="", lr=1e-4, min_lr=0.0):
    """Leaves folder/job.toml and its data, `count` samples. `module`, `data`: further lines of these sections."""
    texts = texts_of(size, count)
    samples = [{"id": f"t{index}", "conversations": [{"from": "human", "value": "go"}, {"from": "gpt", "value": text}]}
               for index, text in enumerate(texts)]
    (folder / "samples.json").write_text(json.dumps(samples), encoding="utf-8")
    return write_toml(folder, f"llama-{size}", "", (module, SIZES[size]), data, ["llm"], (steps, SAMPLES_PER_STEP, MICROBATCHES), lr, min_lr)
