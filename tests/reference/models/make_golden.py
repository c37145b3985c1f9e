#!/usr/bin/env python3
"""Makes the golden tensors of tests/models: outputs and gradients of the transformers library.

    scripts/setup --reference
    ~/.cache/troupe/reference-*/bin/python tests/reference/models/make_golden.py

Each file golden/NAME.safetensors holds a tiny model with random weights in fp64: the weights under
their Hugging Face names, `input.*`, `output.*`, and `grad.NAME` for every trained parameter. The
loss whose gradient it is: for the decoder the cross-entropy summed over all samples; for the others
sum(output * probe) with probe[i] = cos(i) over the flattened output. The configuration stands in
the metadata under `config`.

Arithmetic that the library forces to fp32 (norms, rotary positions) is widened to fp64 while the
models run, so that implementations can be compared to 1e-9.
"""

import contextlib
import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, LlavaConfig, WhisperConfig
from transformers.models.llava.modeling_llava import LlavaMultiModalProjector
from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLVisionConfig
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VisionTransformerPretrainedModel
from transformers.models.whisper.modeling_whisper import WhisperEncoder

FOLDER = Path(__file__).resolve().parent / "golden"


@contextlib.contextmanager
def widened():
    """Everything that asks for fp32 gets fp64."""
    kept = torch.float32, torch.float, torch.Tensor.float
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = kept
        torch.set_default_dtype(kept[0])


def randomise(model, deviation=0.3):
    """Every parameter gets random values, so that no bias or scale is trivially right."""
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        noise = torch.randn_like(parameter.data) * deviation
        is_scale = parameter.dim() == 1 and name.endswith("weight")
        parameter.data.copy_(noise + 1 if is_scale else noise)


def coarse(*shape):
    """Random inputs that fp32 holds exactly, to keep the files small."""
    return torch.randn(*shape).to(torch.float16).double()


def probe_loss(output):
    probe = torch.arange(output.numel()).double().cos().view_as(output)
    return (output * probe).sum()


def collect(model):
    tensors = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        tensors[name] = parameter.detach().clone()
        if parameter.grad is not None:
            tensors["grad." + name] = parameter.grad.clone()
    model.zero_grad()
    return tensors


def save(name, tensors, config):
    kept = {}
    for key, value in tensors.items():
        is_coarse = key in ("input.patches", "input.full", "input.frames", "input.features")
        kept[key] = (value.to(torch.float32) if is_coarse else value).detach().contiguous()
    save_file(kept, FOLDER / f"{name}.safetensors", metadata={"config": json.dumps(config)})


def vision():
    config = dict(depth=2, embed_dim=16, num_heads=2, hidden_size=24, mlp_ratio=3, patch_size=4,
                  spatial_merge_size=2, temporal_patch_size=2, in_channels=3)
    grids = [(4, 6), (2, 2), (6, 4)]
    with widened():
        model = Qwen2VisionTransformerPretrainedModel(
            Qwen2VLVisionConfig(**config, hidden_act="quick_gelu", attn_implementation="sdpa"))
        randomise(model)
        patches = coarse(sum(h * w for h, w in grids), 3 * 2 * 4 * 4)
        output = model(patches, grid_thw=torch.tensor([(1, h, w) for h, w in grids])).pooler_output
        probe_loss(output).backward()
        tensors = collect(model)
    tensors |= {"input.patches": patches, "input.grids": torch.tensor(grids), "output.rows": output}
    save("qwen2_vl", tensors, config)


def encode_window(model, frames):
    """WhisperEncoder.forward for a window of any length: positions are cut to its rows."""
    rows = torch.nn.functional.gelu(model.conv1(frames.T.unsqueeze(0)))
    rows = torch.nn.functional.gelu(model.conv2(rows)).permute(0, 2, 1)
    rows = rows + model.embed_positions.weight[: rows.shape[1]]
    for layer in model.layers:
        rows = layer(rows, None)
    return model.layer_norm(rows)[0]


def audio():
    config = dict(encoder_layers=2, d_model=16, encoder_attention_heads=2, encoder_ffn_dim=40,
                  num_mel_bins=8, max_source_positions=1500)
    windows = [37, 2, 64, 1]
    with widened():
        model = WhisperEncoder(WhisperConfig(**config, attn_implementation="sdpa")).eval()
        randomise(model)
        full = coarse(3000, 8)
        output = model(full.T.unsqueeze(0)).last_hidden_state[0]
        same = encode_window(model, full)
        assert torch.equal(output, same), "encode_window differs from the library's forward"
        probe_loss(output).backward()
        tensors = collect(model)
        tensors |= {"full_" + k: tensors.pop(k) for k in list(tensors) if k.startswith("grad.")}
        frames = [coarse(length, 8) for length in windows]
        packed = torch.cat([encode_window(model, window) for window in frames])
        probe_loss(packed).backward()
        tensors |= collect(model)
    tensors |= {"input.full": full, "output.full_every_50th": output[::50],
                "input.frames": torch.cat(frames), "input.windows": torch.tensor(windows),
                "output.rows": packed}
    save("whisper", tensors, config)


def projector():
    with widened():
        config = LlavaConfig(
            vision_config=dict(model_type="clip_vision_model", hidden_size=12, num_attention_heads=2),
            text_config=dict(model_type="llama", hidden_size=20, num_attention_heads=2))
        model = LlavaMultiModalProjector(config)
        randomise(model)
        rows = coarse(9, 12).requires_grad_()
        output = model(rows)
        probe_loss(output).backward()
        tensors = collect(model)
    tensors |= {"input.features": rows, "output.rows": output, "grad.input": rows.grad}
    save("llava_projector", tensors, dict(input_size=12, hidden_size=20, output_size=20))


def decoder(name, tied, head_dim):
    config = dict(num_hidden_layers=2, hidden_size=24, intermediate_size=40, num_attention_heads=4,
                  num_key_value_heads=2, head_dim=head_dim, vocab_size=37, rms_norm_eps=1e-5,
                  rope_theta=500.0, tie_word_embeddings=tied)
    samples, media_positions = [11, 1, 30, 7], [2, 3, 4, 15, 16, 40]
    with widened():
        rope = dict(rope_type="default", rope_theta=config["rope_theta"])
        arguments = {k: v for k, v in config.items() if k != "rope_theta"}
        model = LlamaForCausalLM(LlamaConfig(**arguments, rope_parameters=rope,
                                             attn_implementation="sdpa"))
        randomise(model)
        ids = torch.randint(0, 37, (sum(samples),))
        labels = torch.where(torch.rand(sum(samples)) < 0.4, -100, ids)
        media = (torch.randn(len(media_positions), 24)).requires_grad_()
        embedded = model.model.embed_tokens(ids)
        embedded = embedded.index_copy(0, torch.tensor(media_positions), media)
        logits, losses, begin = [], [], 0
        for length in samples:
            sample = slice(begin, begin + length)
            logits.append(model(inputs_embeds=embedded[sample].unsqueeze(0)).logits[0])
            losses.append(torch.nn.functional.cross_entropy(
                logits[-1][:-1], labels[sample][1:], ignore_index=-100, reduction="sum"))
            begin += length
        torch.stack(losses).sum().backward()
        tensors = collect(model)
    tensors |= {"input.ids": ids, "input.labels": labels, "input.samples": torch.tensor(samples),
                "input.media_positions": torch.tensor(media_positions), "input.media.rows": media,
                "output.logits": torch.cat(logits), "output.losses": torch.stack(losses),
                "grad.media": media.grad}
    save(name, tensors, config)


def main():
    FOLDER.mkdir(exist_ok=True)
    torch.manual_seed(20)
    torch.set_num_threads(1)
    vision()
    audio()
    projector()
    decoder("llama", tied=False, head_dim=None)
    decoder("llama_tied", tied=True, head_dim=10)


if __name__ == "__main__":
    main()
