#!/usr/bin/env python3
"""A model sized as that of mm_job.py, Qwen2-VL's of transformers, trained under torch.compile on the same numbers of tokens and images.

    mm_transformers.py [--compile layers|model] [--size 2b] [--device cuda]

bf16 parameters and gradients, fp32 sums, masters and moments, as our program has; weights are random. Compiled by layers: what reads
lengths of images between them would cut a graph of the whole model at each layer.
"""

import torch
from transformers import AutoModelForImageTextToText, Qwen2VLConfig

import mm_job
from llama_transformers import ATTENTION, Masters, parser_of, tell_training

IMAGE_ID = 261  # As our own; only where it stands matters.


def make_config(size):
    vision, llm = dict(mm_job.SIZES[size]["vision"]), dict(mm_job.SIZES[size]["llm"])
    half = llm["hidden_size"] // llm["num_attention_heads"] // 2
    # Qwen2-VL's parts of 16, 24 and 24 of 64 turn by time, row and column; here all three are the token's place, as in our llm.
    section = [half - 2 * (3 * half // 8), 3 * half // 8, 3 * half // 8]
    rope = {"rope_type": "default", "rope_theta": llm.pop("rope_theta"), "mrope_section": section}
    text = {**llm, "rope_parameters": rope, "use_cache": False, "max_position_embeddings": 2 * mm_job.TOKENS[size],
            "tie_word_embeddings": True, "bos_token_id": None, "eos_token_id": None}
    return Qwen2VLConfig(text_config=text, vision_config={**vision, "mlp_ratio": mm_job.MLP_RATIO}, image_token_id=IMAGE_ID,
                         video_token_id=IMAGE_ID + 1, tie_word_embeddings=True)


def make_model(size, device):
    torch.manual_seed(1)
    with torch.device(device):
        model = AutoModelForImageTextToText.from_config(make_config(size), dtype=torch.bfloat16, attn_implementation=ATTENTION)
    return model.train()


def compile_model(model, parts):
    """What is called in the model's place."""
    if parts == "model":
        return torch.compile(model, dynamic=False)
    for layer in [*model.model.visual.blocks, *model.model.language_model.layers]:
        layer.compile(dynamic=False)
    return model


def make_batches(size, device):
    """Microbatches of one step: images first, then text, of which the answer is trained."""
    samples, tokens = mm_job.SAMPLES_PER_STEP // mm_job.MICROBATCHES, mm_job.TOKENS[size]
    images, side = samples * mm_job.IMAGES_PER_SAMPLE, mm_job.SIDES[size] // mm_job.PATCH
    batches = []
    for _ in range(mm_job.MICROBATCHES):
        ids = torch.randint(0, 256, (samples, tokens), device=device)
        ids[:, 2:2 + mm_job.image_rows(size)] = IMAGE_ID
        labels = ids.clone()
        labels[:, :tokens - mm_job.trained_tokens(size)] = -100
        pixels = torch.randn(images * mm_job.patches(size), mm_job.PATCH_VALUES, device=device, dtype=torch.bfloat16)
        batches.append({"input_ids": ids, "labels": labels, "pixel_values": pixels,
                        "image_grid_thw": torch.tensor([[1, side, side]] * images, device=device),
                        # Given, so that no loop over tokens on the host makes them.
                        "position_ids": torch.arange(tokens, device=device).expand(3, samples, tokens)})
    return batches


def main():
    options = parser_of(mm_job, "2b", "layers").parse_args()
    options.name = f"transformers, masters, compiled by {options.compile}"
    tell_training("mm", mm_job, options, make_model, compile_model, Masters, make_batches)


if __name__ == "__main__":
    main()
