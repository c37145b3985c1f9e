"""The multimodal model that mm-2b measures, sized as Qwen2-VL-2B, its job for our program, and the arithmetic of a token."""

import json
import random
import struct
import zlib

import llama_job

SIZES = {
    "2b": {"vision": dict(depth=32, embed_dim=1280, num_heads=16, hidden_size=1536),
           "llm": dict(num_hidden_layers=28, hidden_size=1536, intermediate_size=8960, num_attention_heads=12, num_key_value_heads=2,
                       vocab_size=151936, rope_theta=1000000.0, rms_norm_eps=1e-6)},
    "small": {"vision": dict(depth=2, embed_dim=64, num_heads=4, hidden_size=128),
              "llm": dict(num_hidden_layers=2, hidden_size=128, intermediate_size=256, num_attention_heads=4, num_key_value_heads=2,
                          vocab_size=512, rope_theta=1000000.0, rms_norm_eps=1e-6)},
}
TOKENS = {"2b": 2048, "small": 128}  # Of a sample, rows of its images included.
SIDES = {"2b": 448, "small": 56}  # Of an image, in pixels: no image is resized.
IMAGES_PER_SAMPLE = 3
IMAGE_FILES = 8
SAMPLES_PER_STEP, MICROBATCHES = 8, 4
# Patches of 14 x 14 over two frames, joined by four to a row of the llm.
PATCH, PATCH_VALUES, MERGED = 14, 3 * 2 * 14 * 14, 4
MLP_RATIO = 4


def patches(size):
    """Of one image."""
    return (SIDES[size] // PATCH) ** 2


def image_rows(size):
    """Rows of the llm that are a sample's images."""
    return IMAGES_PER_SAMPLE * patches(size) // MERGED


def trained_tokens(size):
    """Of a sample: its answer's text and end."""
    return TOKENS[size] - image_rows(size) - llama_job.TOKENS_AROUND + 1


def parameters(size):
    """Of both modules, as our program has them: its llm has no biases."""
    vision = SIZES[size]["vision"]
    width, rows = vision["embed_dim"], vision["hidden_size"]
    inner, joined = MLP_RATIO * width, MERGED * width
    block = 4 * width * width + 2 * width * inner + (3 * width + width + inner + width) + 4 * width
    merger = 2 * width + joined * joined + joined + joined * rows + rows
    return PATCH_VALUES * width + vision["depth"] * block + merger + llama_job.parameters_of(SIZES[size]["llm"])


def flops_per_token(size):
    """Forward and backward, as llama_job counts them; images see themselves, and the head computes what is trained."""
    vision, llm, tokens = SIZES[size]["vision"], SIZES[size]["llm"], TOKENS[size]
    width, joined = vision["embed_dim"], MERGED * vision["embed_dim"]
    block = (4 + 2 * MLP_RATIO) * width * width
    patch = 6 * (PATCH_VALUES * width + vision["depth"] * block + (joined * joined + joined * vision["hidden_size"]) / MERGED)
    patch += 12 * vision["depth"] * width * patches(size)
    layers, hidden = llm["num_hidden_layers"], llm["hidden_size"]
    token = 6 * layers * llama_job.layer_matrices(llm) + 12 * layers * hidden * (tokens + 1) / 2
    head = 6 * hidden * llm["vocab_size"] * trained_tokens(size) / tokens
    return token + head + patch * IMAGES_PER_SAMPLE * patches(size) / tokens


def png(side, rng):
    """A picture of noise, as the bytes of its file."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = b"".join(b"\0" + rng.randbytes(3 * side) for _ in range(side))
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)  # 8 bits of red, green and blue, not interlaced.
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines, 1)) + chunk(b"IEND", b"")


def write_data(folder, size, count):
    """Leaves folder/samples.json and the pictures that it names: `count` samples of TOKENS[size] tokens."""
    rng = random.Random(1)
    for index in range(IMAGE_FILES):
        (folder / f"{index}.png").write_bytes(png(SIDES[size], rng))
    samples = []
    for index in range(count):
        images = [f"{(IMAGES_PER_SAMPLE * index + image) % IMAGE_FILES}.png" for image in range(IMAGES_PER_SAMPLE)]
        turns = [{"from": "human", "value": "<image>" * IMAGES_PER_SAMPLE + "go"},
                 {"from": "gpt", "value": llama_job.text_of(trained_tokens(size) - 1, rng)}]
        samples.append({"id": f"m{index}", "image": images, "conversations": turns})
    (folder / "samples.json").write_text(json.dumps(samples), encoding="utf-8")


def write_job(folder, size, steps, count=64):
    """Leaves folder/job.toml and its data."""
    write_data(folder, size, count)
    encoder = f'''[modules.vision]
kind = "encoder"
family = "qwen2-vl"
next = "llm"
[modules.vision.config]
{llama_job.lines_of(SIZES[size]["vision"])}'''
    data = f"max_pixels = {SIDES[size] ** 2}\nthreads = 4"
    return llama_job.write_toml(folder, f"mm-{size}", encoder, ("", SIZES[size]["llm"]), data, ["vision", "llm"],
                                (steps, SAMPLES_PER_STEP, MICROBATCHES))
