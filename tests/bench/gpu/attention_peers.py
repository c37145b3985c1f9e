#!/usr/bin/env python3
"""Attention of PyTorch under our masks: FlexAttention, a matrix, and what is fastest where samples are causal.

    attention_peers.py --tokens N [--dim 128] [--heads 32] [--kv-heads 8] [--device cuda]

A JSON object for each mask and way; what fails leaves its error in the place of times.
"""

import argparse
import sys
import time

import torch
import torch.nn.functional as functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.attention.varlen import varlen_attn

import masks
from report import already, emit, key_of, spread

BLOCK = 128
MATRIX_TOKENS_MAX = 16384
COMPARED_TOKENS_MAX = 4096
WARMUP, REPEATS = 3, 5
# About 10 ms, in which the GPU waits while the processor hands it the work: then launches cost nothing that is measured.
HEAD_START_CYCLES = 20_000_000


class Problem:
    """One mask at one size: tensors [1, heads, tokens, dim], and tables by token."""

    def __init__(self, mask, options):
        self.mask, self.tokens, self.device = mask, options.tokens, options.device
        self.samples = masks.samples_of(mask, options.tokens)
        self.table = {name: torch.tensor(values, dtype=torch.int32, device=self.device)
                      for name, values in masks.tables_of(self.samples).items()}
        generator = torch.Generator(self.device).manual_seed(1)

        def drawn(heads):
            return torch.randn(1, heads, options.tokens, options.dim, generator=generator, device=self.device, dtype=torch.bfloat16)

        self.query, self.key, self.value = (drawn(heads).requires_grad_() for heads in (options.heads, options.kv_heads, options.kv_heads))
        self.d_out = drawn(options.heads)
        self.group = options.heads // options.kv_heads

    def inputs(self):
        return [self.query, self.key, self.value]


def counts_of(rule, tokens, device):
    """Pairs seen in each block of queries by each block of keys; some rows of blocks at a time, as the whole matrix may not fit."""
    keys, counts = torch.arange(tokens, device=device)[None, :], []
    for begin in range(0, tokens, 16 * BLOCK):
        queries = torch.arange(begin, min(begin + 16 * BLOCK, tokens), device=device)[:, None]
        seen = rule(None, None, queries, keys)
        counts.append(seen.view(-1, BLOCK, tokens // BLOCK, BLOCK).sum(dim=(1, 3)))
    return torch.cat(counts)


def block_mask_of(rule, counts, tokens):
    """As create_block_mask makes it, from counts."""
    full = counts == BLOCK * BLOCK
    partial = (counts > 0) & ~full

    def ordered(blocks):
        indices = torch.argsort(blocks.int(), dim=-1, descending=True, stable=True)
        return blocks.sum(dim=-1).int()[None, None], indices.int()[None, None]

    return BlockMask.from_kv_blocks(*ordered(partial), *ordered(full), BLOCK_SIZE=BLOCK, mask_mod=rule, seq_lengths=(tokens, tokens))


def flex(problem, rule):
    torch._dynamo.reset()
    block_mask = block_mask_of(rule, counts_of(rule, problem.tokens, problem.device), problem.tokens)
    compiled = torch.compile(flex_attention, dynamic=False)
    return (lambda: compiled(*problem.inputs(), block_mask=block_mask, enable_gqa=True)), problem.inputs(), problem.d_out


def matrix(problem):
    queries, keys = (torch.arange(problem.tokens, device=problem.device).view(shape) for shape in ((-1, 1), (1, -1)))
    seen = masks.rule_by_ranges(problem.table)(None, None, queries, keys)[None, None]

    def forward():  # Kernels that take a matrix know no groups of heads.
        key, value = (x.repeat_interleave(problem.group, dim=1) for x in (problem.key, problem.value))
        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION]):
            return functional.scaled_dot_product_attention(problem.query, key, value, attn_mask=seen)

    return forward, problem.inputs(), problem.d_out


def varlen(problem):
    lengths = [tokens for tokens, _ in problem.samples]
    ends = torch.tensor([0, *lengths], device=problem.device).cumsum(0).int()
    by_token = [x.detach()[0].transpose(0, 1).contiguous().requires_grad_() for x in problem.inputs()]
    d_out = problem.d_out[0].transpose(0, 1).contiguous()
    return (lambda: varlen_attn(*by_token, ends, ends, max(lengths), max(lengths), window_size=(-1, 0))), by_token, d_out


def cudnn(problem):
    def forward():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return functional.scaled_dot_product_attention(*problem.inputs(), is_causal=True, enable_gqa=True)

    return forward, problem.inputs(), problem.d_out


def ways(problem):
    """Name and maker of each way that this mask has; the matrix comes first, as others are compared with it."""
    if problem.tokens <= MATRIX_TOKENS_MAX:
        yield "matrix", lambda: matrix(problem)
    if "text" in problem.mask or problem.mask == "causal":
        yield "flash varlen", lambda: varlen(problem)
    if problem.mask == "causal":
        yield "cudnn causal", lambda: cudnn(problem)
    yield "flex", lambda: flex(problem, masks.rule_by_names(problem.mask, problem.table))
    if problem.mask != "causal":
        yield "flex ranges", lambda: flex(problem, masks.rule_by_ranges(problem.table))


class Marks:
    """Points of time in the device's order of work."""

    def __init__(self, device):
        self.cuda, self.points = device.startswith("cuda"), []
        if self.cuda:
            torch.cuda._sleep(HEAD_START_CYCLES)

    def mark(self):
        point = torch.cuda.Event(enable_timing=True) if self.cuda else time.perf_counter()
        if self.cuda:
            point.record()
        self.points.append(point)

    def spans_ms(self):
        pairs = list(zip(self.points, self.points[1:]))
        if not self.cuda:
            return [1000 * (after - before) for before, after in pairs]
        torch.cuda.synchronize()
        return [before.elapsed_time(after) for before, after in pairs]


def time_once(forward, inputs, d_out, device):
    for x in inputs:
        x.grad = None
    marks = Marks(device)
    marks.mark()
    out = forward()
    marks.mark()
    out.backward(d_out)
    marks.mark()
    return marks.spans_ms()


def measure(problem, make):
    """Times of forward and backward, and what the first call took: compiling."""
    begin = time.perf_counter()
    forward, inputs, d_out = make()
    out = forward()
    out.backward(d_out)
    if problem.device.startswith("cuda"):
        torch.cuda.synchronize()
    first_s = time.perf_counter() - begin
    times = [time_once(forward, inputs, d_out, problem.device) for _ in range(WARMUP + REPEATS)][WARMUP:]
    forwards, backwards = zip(*times)
    row = {**spread("forward_ms", forwards), **spread("backward_ms", backwards), **spread("both_ms", [sum(pair) for pair in times])}
    return {**row, "first_call_s": round(first_s, 1)}, out.detach()


def difference(problem, out, reference):
    """How far apart two ways are at most: the mask of each is right where this is small."""
    if out.dim() == 3:
        out = out.transpose(0, 1)[None]
    return {"difference_max": round((out.float() - reference.float()).abs().max().item(), 4)}


def measure_mask(mask, options, done):
    problem, reference = Problem(mask, options), None
    for peer, make in ways(problem):
        row = {"measure": "attention", "peer": peer, "mask": mask, "tokens": options.tokens, "heads": options.heads,
               "kv_heads": options.kv_heads, "dim": options.dim, "dtype": "bf16"}
        if key_of(row) in done:
            continue
        try:
            times, out = measure(problem, make)
            if peer == "matrix" and options.tokens <= COMPARED_TOKENS_MAX:
                reference = out
            emit({**row, **times, **(difference(problem, out, reference) if reference is not None else {})})
        except Exception as error:  # Whatever one way lacks, the others are measured.
            emit({**row, "error": f"{type(error).__name__}: {error}"[:600]})
            if "CUDA error" in str(error):
                sys.exit(f"{mask}, {peer}: this process can use the GPU no more; the next one goes on behind it")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--device", default="cuda")
    options, done = parser.parse_args(), already()
    for mask in masks.MASKS:
        measure_mask(mask, options, done)


if __name__ == "__main__":
    main()
