#!/usr/bin/env python3
"""The model of llama_job.py, trained by transformers under torch.compile on the same numbers of tokens.

    llama_transformers.py --variant autocast|masters [--compile model|layers] [--size 1b] [--device cuda]

autocast: fp32 parameters, bf16 products. masters: bf16 parameters and gradients, fp32 sums, masters and moments, as our program has.
"""

import argparse
import contextlib
import functools
import time

import torch
from transformers import AttentionInterface, AutoModelForCausalLM, LlamaConfig
from transformers.integrations.sdpa_attention import sdpa_attention_forward

import llama_job
from report import emit, spread

WARMUP_STEPS = 3
# "sdpa", under a name for which transformers makes no mask: while it is compiled it would make a matrix, which keeps out the flash kernel.
ATTENTION = "sdpa-causal"
AttentionInterface.register(ATTENTION, sdpa_attention_forward)


def make_model(size, device, dtype):
    sizes = dict(llama_job.SIZES[size])
    theta = sizes.pop("rope_theta")
    config = LlamaConfig(**sizes, rope_parameters={"rope_type": "default", "rope_theta": theta}, tie_word_embeddings=True, use_cache=False,
                         max_position_embeddings=2 * llama_job.TOKENS[size])
    torch.manual_seed(1)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=ATTENTION)
    return model.train()


def compile_model(model, parts):
    """What is called in the model's place. By layers: one layer is compiled, for all of them, in a fraction of the time."""
    if parts == "model":
        return torch.compile(model, dynamic=False)
    for layer in model.model.layers:
        layer.compile(dynamic=False)
    return model


class Autocast:
    """fp32 parameters that are their own masters."""

    dtype = torch.float32

    def __init__(self, model, device, lr=1e-4):
        self.parameters = list(model.parameters())
        self.optimizer = make_optimizer(self.parameters, lr)
        self.context = lambda: torch.autocast(device.split(":")[0], dtype=torch.bfloat16)

    def gather(self):
        pass  # Backward sums gradients where the optimizer finds them.

    def update(self):
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class Masters:
    """bf16 parameters; masters, moments and sums of gradients in fp32."""

    dtype = torch.bfloat16

    def __init__(self, model, device, lr=1e-4):
        self.parameters = list(model.parameters())
        self.masters = [parameter.detach().float() for parameter in self.parameters]
        for master in self.masters:
            master.grad = torch.zeros_like(master)
        self.sums = [master.grad for master in self.masters]
        self.optimizer = make_optimizer(self.masters, lr)
        self.context = contextlib.nullcontext

    def gather(self):
        """Adds a microbatch's gradients to the sums."""
        torch._foreach_add_(self.sums, [parameter.grad for parameter in self.parameters])
        for parameter in self.parameters:
            parameter.grad = None

    def update(self):
        torch.nn.utils.clip_grad_norm_(self.masters, 1.0, foreach=True)
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(self.parameters, self.masters)
        torch._foreach_zero_(self.sums)


def make_optimizer(parameters, lr):
    """Weights decay where ours do: in matrices alone."""
    groups = [{"params": [parameter for parameter in parameters if parameter.dim() > 1], "weight_decay": 0.01},
              {"params": [parameter for parameter in parameters if parameter.dim() <= 1], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), eps=1e-8, fused=True)


def make_batches(size, device):
    """Microbatches of one step; the ids that occur are as few as in our own job's text."""
    shape = (llama_job.SAMPLES_PER_STEP // llama_job.MICROBATCHES, llama_job.TOKENS[size])
    drawn = [torch.randint(0, llama_job.IDS_USED, shape, device=device) for _ in range(llama_job.MICROBATCHES)]
    return [{"input_ids": ids, "labels": ids} for ids in drawn]


def train_step(model, state, batches):
    losses = []
    for batch in batches:
        with state.context():
            loss = model(**batch).loss / len(batches)
        loss.backward()
        state.gather()
        losses.append(loss.detach())
    state.update()
    return sum(losses)


def timed_steps(count, step, device):
    """Milliseconds of each step, and the last one's loss."""
    times, loss = [], 0.0
    for _ in range(count):
        begin = time.perf_counter()
        loss = step().item()  # Waits for all but the update, which the next line waits for.
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - begin))
    return times, loss


def memory_row(device):
    if not device.startswith("cuda"):
        return {}
    return {"allocated_mib_max": torch.cuda.max_memory_allocated() // 2**20, "reserved_mib_max": torch.cuda.max_memory_reserved() // 2**20}


def measure(options, model, compiled, state, batches):
    """Times of steps, after one that compiles and tells of itself."""
    run = functools.partial(train_step, compiled, state, batches)
    (first,), loss_first = timed_steps(1, run, options.device)
    emit({"measure": "compiling", "system": options.name, "compile_s": round(first / 1000, 1), "loss": loss_first,
          "parameters": sum(parameter.numel() for parameter in state.parameters), "attention": model.config._attn_implementation})
    timed_steps(WARMUP_STEPS - 1, run, options.device)
    times, loss = timed_steps(llama_job.MEASURED_STEPS, run, options.device)
    tokens = sum(batch["input_ids"].numel() for batch in batches)
    return {"tokens_per_step": tokens, **spread("step_ms", times), **spread("tokens_per_s", [1000 * tokens / ms for ms in times]),
            "loss_first": loss_first, "loss_last": loss, **memory_row(options.device)}


def parser_of(job, size, parts):
    """Of a program that trains a model of `job`, by default this size, compiled by these parts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--compile", choices=["layers", "model"], default=parts)
    parser.add_argument("--size", default=size, choices=job.SIZES)
    parser.add_argument("--device", default="cuda")
    return parser


def tell_training(name, job, options, make, compiled, state_of, batches):
    """Measures a model of `job`, and emits the row. Of size and device `make` gives the model, `batches` those of a step; `compiled` gives what
    is called in the model's place."""
    torch.set_float32_matmul_precision("high")
    model = make(options.size, options.device)
    result = measure(options, model, compiled(model, options.compile), state_of(model, options.device), batches(options.size, options.device))
    emit({"measure": f"{name}-{options.size}", "system": options.name, **result, "flops_per_token": job.flops_per_token(options.size),
          "versions": f"torch {torch.__version__}"})


def main():
    parser = parser_of(llama_job, "1b", "model")
    parser.add_argument("--variant", choices=["autocast", "masters"], required=True)
    options = parser.parse_args()
    options.name = f"transformers, {options.variant}, compiled by {options.compile}"
    state_of = {"autocast": Autocast, "masters": Masters}[options.variant]
    tell_training("llama", llama_job, options, functools.partial(make_model, dtype=state_of.dtype), compile_model, state_of, make_batches)


if __name__ == "__main__":
    main()
