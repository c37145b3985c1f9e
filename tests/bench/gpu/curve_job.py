"""What curve-bf16 trains, by our program and by torch alike: the same first weights, tokens and order of samples."""

import array
import json
import random
import struct

import llama_job

STEPS = 200
LEARNING_RATE = 1e-3  # Of all steps.
DEVIATION = 0.02
# Ids of ByteTokenizer (runtime/data/reading) behind the bytes.
BEGIN, USER, ASSISTANT, END = 256, 258, 259, 260
IGNORED = -100


def shapes(size):
    """Name and shape of each parameter, as our program calls it."""
    sizes = llama_job.SIZES[size]
    hidden, inner, head = sizes["hidden_size"], sizes["intermediate_size"], sizes["hidden_size"] // sizes["num_attention_heads"]
    keys = head * sizes["num_key_value_heads"]
    matrices = {"self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (keys, hidden), "self_attn.v_proj": (keys, hidden),
                "self_attn.o_proj": (hidden, hidden), "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden),
                "mlp.down_proj": (hidden, inner), "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,)}
    layers = {f"llm.model.layers.{index}.{name}.weight": shape
              for index in range(sizes["num_hidden_layers"]) for name, shape in matrices.items()}
    return {"llm.model.embed_tokens.weight": (sizes["vocab_size"], hidden), **layers, "llm.model.norm.weight": (hidden,)}


def bf16_bytes(values):
    """The upper halves of fp32: masters that are made of them have the same values."""
    bits = array.array("I", array.array("f", values).tobytes())
    return array.array("H", [word >> 16 for word in bits]).tobytes()


def write_weights(path, size):
    """A safetensors file: matrices from a normal distribution, scales of norms are 1."""
    rng, header, parts, at = random.Random(2), {}, [], 0
    for name, shape in shapes(size).items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        parts.append(bf16_bytes([rng.gauss(0, DEVIATION) for _ in range(count)] if len(shape) > 1 else [1.0] * count))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + len(parts[-1])]}
        at += len(parts[-1])
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def write(folder, size, steps):
    """Leaves folder/weights.safetensors and a job that begins with it and takes samples in their order."""
    weights = folder / "weights.safetensors"
    write_weights(weights, size)
    return llama_job.write_job(folder, size, steps, count=steps * llama_job.SAMPLES_PER_STEP, module=f'init = "{weights}"',
                               data="shuffle = false", lr=LEARNING_RATE, min_lr=LEARNING_RATE)


def tokens_of(text):
    """Ids and labels of a sample whose question is "go", as encode_text makes them."""
    before = [BEGIN, USER, *b"go", END, ASSISTANT]
    answer = [*text.encode(), END]
    return before + answer, [IGNORED] * len(before) + answer


def microbatches(size, steps):
    """Of each step its microbatches, each (ids, labels) of its samples."""
    samples = [tokens_of(text) for text in llama_job.texts_of(size, steps * llama_job.SAMPLES_PER_STEP)]
    each = llama_job.SAMPLES_PER_STEP // llama_job.MICROBATCHES
    batches = [tuple(map(list, zip(*samples[begin:begin + each]))) for begin in range(0, len(samples), each)]
    return [batches[begin:begin + llama_job.MICROBATCHES] for begin in range(0, len(batches), llama_job.MICROBATCHES)]
