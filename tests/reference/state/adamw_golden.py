"""Writes adamw.safetensors: what torch.optim.AdamW does with fixed gradients, for adamw.test.cpp.

Run with the interpreter that `scripts/setup --reference` installs:

    ~/.cache/troupe/reference-2.11.0/bin/python tests/reference/state/adamw_golden.py

Per type (f64, f32): a matrix and a vector, six steps, another learning rate each step, gradients of zeros
at step 3, weight decay on the matrix only. Names: TYPE.PARAMETER.{start,gradient.STEP,value.STEP}.
"""

import os

import torch
from safetensors.torch import save_file

STEPS = 6


def learning_rate(step):
    return 1e-2 / step


def main():
    torch.manual_seed(7)
    tensors = {}
    for name, dtype in (("f64", torch.float64), ("f32", torch.float32)):
        matrix = torch.randn(5, 7, dtype=dtype)
        vector = torch.randn(9, dtype=dtype)
        tensors[f"{name}.matrix.start"] = matrix.clone()
        tensors[f"{name}.vector.start"] = vector.clone()
        optimizer = torch.optim.AdamW(
            [{"params": [matrix], "weight_decay": 0.1}, {"params": [vector], "weight_decay": 0.0}],
            betas=(0.9, 0.95), eps=1e-8, foreach=False, fused=False)
        for step in range(1, STEPS + 1):
            for key, parameter in (("matrix", matrix), ("vector", vector)):
                gradient = torch.randn_like(parameter) * (0 if step == 3 else 10.0 ** (step - 4))
                parameter.grad = gradient
                tensors[f"{name}.{key}.gradient.{step}"] = gradient.clone()
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step)
            optimizer.step()
            for key, parameter in (("matrix", matrix), ("vector", vector)):
                tensors[f"{name}.{key}.value.{step}"] = parameter.clone()
    # Every type of the format once, for the reader.
    values = torch.tensor([0.0, 1.0, -2.0, 3.0])
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32):
        tensors["types." + str(dtype).split(".")[1]] = values.to(dtype)
    tensors["types.uint8"] = values.abs().to(torch.uint8)
    tensors["types.bool"] = values != 0
    tensors["types.scalar"] = torch.tensor(2.5)
    tensors["types.empty"] = torch.empty(0, 3)
    save_file(tensors, os.path.join(os.path.dirname(os.path.abspath(__file__)), "adamw.safetensors"),
              metadata={"torch": torch.__version__})


if __name__ == "__main__":
    main()
