#!/usr/bin/env python3
"""The model of model_bench.cpp in plain PyTorch on the same shapes: tokens per second, one thread.

    ~/.cache/troupe/reference-*/bin/python tests/bench/model_peer.py [SHAPES.json] [REPEATS]

Written as a PyTorch user would write it for speed: nn modules, packed samples, fused operators of
torch.nn.functional, scaled_dot_product_attention per packed segment. Prints JSON lines.
"""

import json
import statistics
import sys
import time
from pathlib import Path

try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError:
    sys.exit(77)  # No peer here: scripts/setup --reference installs it.


def rotate_half(x):
    low, high = x.chunk(2, dim=-1)
    return torch.cat((-high, low), dim=-1)


def apply_rotary(x, cos, sin):
    return x * cos + rotate_half(x) * sin


def attend(q, k, v, segments, causal):
    """q, k, v: [rows, heads, dim]."""
    parts = []
    for a, b, c in zip(q.split(segments), k.split(segments), v.split(segments)):
        parts.append(F.scaled_dot_product_attention(
            a.transpose(0, 1)[None], b.transpose(0, 1)[None], c.transpose(0, 1)[None],
            is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])[0].transpose(0, 1))
    return torch.cat(parts).flatten(1)


class VisionBlock(nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x, cos, sin, segments):
        q, k, v = self.qkv(self.norm1(x)).view(len(x), 3, self.heads, -1).unbind(1)
        q, k = apply_rotary(q, cos, sin), apply_rotary(k, cos, sin)
        x = x + self.proj(attend(q, k, v, segments, False))
        y = self.fc1(self.norm2(x))
        return x + self.fc2(y * torch.sigmoid(1.702 * y))


class Vision(nn.Module):
    def __init__(self, depth=4, width=64, heads=4, out=128, patch=1176):
        super().__init__()
        self.dim = width // heads
        self.patch_embed = nn.Linear(patch, width, bias=False)
        self.blocks = nn.ModuleList(VisionBlock(width, heads, 4 * width) for _ in range(depth))
        self.ln_q = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(4 * width, 4 * width), nn.GELU(), nn.Linear(4 * width, out))

    def forward(self, patches, grids):
        positions = []
        for h, w in grids:
            y = torch.arange(h)[:, None].expand(h, w).reshape(h // 2, 2, w // 2, 2)
            x = torch.arange(w)[None, :].expand(h, w).reshape(h // 2, 2, w // 2, 2)
            positions.append(torch.stack([y.permute(0, 2, 1, 3).flatten(),
                                          x.permute(0, 2, 1, 3).flatten()], -1))
        frequencies = 10000 ** (-torch.arange(0, self.dim // 2, 2).float() / (self.dim // 2))
        angles = (torch.cat(positions)[..., None].float() * frequencies).flatten(1)
        angles = torch.cat((angles, angles), -1)[:, None]
        cos, sin, segments = angles.cos(), angles.sin(), [h * w for h, w in grids]
        x = self.patch_embed(patches)
        for block in self.blocks:
            x = block(x, cos, sin, segments)
        return self.mlp(self.ln_q(x).view(-1, 4 * x.shape[1]))


class AudioBlock(nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.heads = heads
        self.q, self.v, self.o = (nn.Linear(width, width) for _ in range(3))
        self.k = nn.Linear(width, width, bias=False)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.fc1, self.fc2 = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x, segments):
        y = self.norm1(x)
        q, k, v = (m(y).view(len(x), self.heads, -1) for m in (self.q, self.k, self.v))
        x = x + self.o(attend(q, k, v, segments, False))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Audio(nn.Module):
    def __init__(self, layers=2, width=64, heads=4, inner=256, mel=80):
        super().__init__()
        self.conv1 = nn.Conv1d(mel, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.register_buffer("positions", torch.randn(1500, width))
        self.layers = nn.ModuleList(AudioBlock(width, heads, inner) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, frames, windows):
        rows = []
        for window in frames.split(windows):
            x = F.gelu(self.conv2(F.gelu(self.conv1(window.T[None]))))[0].T
            rows.append(x + self.positions[: len(x)])
        segments = [len(x) for x in rows]
        x = torch.cat(rows)
        for layer in self.layers:
            x = layer(x, segments)
        return self.norm(x)


class DecoderBlock(nn.Module):
    def __init__(self, width, heads, kv_heads, inner):
        super().__init__()
        self.dim = width // heads
        self.q, self.o = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(width, kv_heads * self.dim, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)

    def forward(self, x, cos, sin, segments):
        y = self.norm1(x)
        q, k, v = (m(y).view(len(x), -1, self.dim) for m in (self.q, self.k, self.v))
        q, k = apply_rotary(q, cos, sin), apply_rotary(k, cos, sin)
        x = x + self.o(attend(q, k, v, segments, True))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    def __init__(self, layers=4, width=128, heads=4, kv_heads=2, inner=352, vocabulary=320):
        super().__init__()
        self.dim = width // heads
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(DecoderBlock(width, heads, kv_heads, inner) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids, segments, labels, media):
        positions = torch.cat([torch.arange(s) for s in segments]).float()
        frequencies = 10000 ** (-torch.arange(0, self.dim, 2).float() / self.dim)
        angles = positions[:, None] * frequencies
        angles = torch.cat((angles, angles), -1)[:, None]
        cos, sin = angles.cos(), angles.sin()
        x = self.embed(ids)
        for where, rows in media:
            x = x.index_copy(0, where, rows)
        for layer in self.layers:
            x = layer(x, cos, sin, segments)
        targets = torch.cat([F.pad(l[1:], (0, 1), value=-100) for l in labels.split(segments)])
        chosen = (targets != -100).nonzero()[:, 0]
        logits = self.head(self.norm(x[chosen]))
        return F.cross_entropy(logits, targets[chosen], reduction="sum")


def projector(width, out=128):
    return nn.Sequential(nn.Linear(width, out), nn.GELU(), nn.Linear(out, out))


def make_batch(samples):
    grids, windows, segments = [], [], []
    vision_at, audio_at, labels, first = [], [], [], 0
    for sample in samples:
        position = first
        for h, w in sample["grids"]:
            grids.append((h, w))
            vision_at += range(position, position + h * w // 4)
            position += h * w // 4
        for length in sample["frames"]:
            windows.append(length)
            audio_at += range(position, position + (length + 1) // 2)
            position += (length + 1) // 2
        tokens, trained = sample["tokens"], sample["trained"]
        labels += [-100 if t + trained < tokens else (first + t) % 256 for t in range(tokens)]
        segments.append(tokens)
        first += tokens

    def wave(rows, columns):
        return (torch.arange(rows * columns).float() * 0.7).sin().view(rows, columns)

    return dict(grids=grids, windows=windows, segments=segments, labels=torch.tensor(labels),
                vision_at=torch.tensor(vision_at, dtype=torch.long),
                audio_at=torch.tensor(audio_at, dtype=torch.long), ids=torch.arange(first) % 256,
                patches=wave(sum(h * w for h, w in grids), 1176), frames=wave(sum(windows), 80))


def main():
    here = Path(__file__).resolve().parent
    shapes = json.loads(Path(sys.argv[1] if len(sys.argv) > 1 else here / "model_shapes.json").read_text())
    repeats = int(sys.argv[2]) if len(sys.argv) > 2 else 9
    torch.set_num_threads(1)
    vision, audio, llm = Vision(), Audio(), Decoder()
    vision_projector, audio_projector = projector(128), projector(64)
    modules = nn.ModuleList([vision, audio, llm, vision_projector, audio_projector])
    batches = [make_batch(shapes[i:i + 4]) for i in range(0, len(shapes) - 3, 4)]
    tokens = sum(len(batch["ids"]) for batch in batches)
    seconds, cpu_seconds = [], []
    for repeat in range(repeats + 2):
        modules.zero_grad(set_to_none=True)
        begin, cpu_begin = time.perf_counter(), time.process_time()
        for batch in batches:
            media = []
            if batch["grids"]:
                media.append((batch["vision_at"], vision_projector(vision(batch["patches"], batch["grids"]))))
            if batch["windows"]:
                media.append((batch["audio_at"], audio_projector(audio(batch["frames"], batch["windows"]))))
            llm(batch["ids"], batch["segments"], batch["labels"], media).backward()
        if repeat >= 2:
            seconds.append(time.perf_counter() - begin)
            cpu_seconds.append(time.process_time() - cpu_begin)
    parameters = sum(p.numel() for p in modules.parameters()) + audio.positions.numel()
    for measure, value, unit in [
            ("model.parameters", parameters, ""),
            ("model.tokens_per_s", tokens / statistics.median(seconds), "tokens/s"),
            ("model.tokens_per_cpu_s", tokens / statistics.median(cpu_seconds), "tokens/s")]:
        print(json.dumps({"measure": measure, "value": value, "unit": unit}), flush=True)


if __name__ == "__main__":
    main()
