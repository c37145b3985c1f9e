"""A worker under torchrun for recovery_bench.py: trains an llm by fully_shard, saves each step, and goes on when started again.

    torchrun --standalone --nproc-per-node 4 --max-restarts N recovery_torchrun.py FOLDER MODEL

MODEL is JSON: `width`, `inner`, `layers`, `vocabulary`, and `samples` of `tokens` each per worker and step. The model is
model_peer.py's decoder in fp32 with AdamW. Half of the workers hold a copy together, the other half another one, as the
two pipelines of two stages do. Saves are torch.distributed.checkpoint's, each before the next step begins; the newest
two stay. FOLDER gets pid-RANK of every worker, and of rank 0 steps.jsonl: a line at the end of each step (`step`, `ms`,
`at` by the clock that all processes share) and one for each complete save (`saved`).
"""

import json
import os
import pathlib
import shutil
import sys
import time
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import model_peer

HEADS = 4
KEPT = 2  # Checkpoints.


def make_model(model, workers):
    """On no device until it is known whether values come from a checkpoint."""
    with torch.device("meta"):
        decoder = model_peer.Decoder(model["layers"], model["width"], HEADS, HEADS, model["inner"], model["vocabulary"])
    mesh = init_device_mesh("cpu", (2, workers // 2), mesh_dim_names=("copies", "shards"))
    for layer in decoder.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(decoder, mesh=mesh)
    return decoder.to_empty(device="cpu")


def newest_save(folder):
    """Steps of the newest complete checkpoint; 0 where there is none."""
    return max((int(path.parent.name) for path in folder.glob("saves/*/.metadata")), default=0)


def begin(decoder, optimizer, folder):
    """Steps done: of the newest checkpoint, or none and first values."""
    done = newest_save(folder)
    if done == 0:
        for module in decoder.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
        return 0
    values, moments = get_state_dict(decoder, optimizer)
    dcp.load({"model": values, "optimizer": moments}, checkpoint_id=folder / "saves" / str(done))
    set_state_dict(decoder, optimizer, model_state_dict=values, optim_state_dict=moments)
    return done


def train_step(decoder, optimizer, model):
    count = model["samples"] * model["tokens"]
    ids = torch.randint(256, (count,))
    loss = decoder(ids, [model["tokens"]] * model["samples"], ids, []) / count
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    dist.barrier()


def save(decoder, optimizer, folder, step):
    values, moments = get_state_dict(decoder, optimizer)
    dcp.save({"model": values, "optimizer": moments}, checkpoint_id=folder / "saves" / str(step))
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(folder / "saves" / str(step - KEPT), ignore_errors=True)


def main():
    warnings.filterwarnings("ignore")
    folder, model = pathlib.Path(sys.argv[1]), json.loads(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    (folder / f"pid-{rank}").write_text(str(os.getpid()), encoding="utf-8")
    decoder = make_model(model, dist.get_world_size())
    optimizer = torch.optim.AdamW(decoder.parameters(), lr=1e-4, fused=True)
    step = begin(decoder, optimizer, folder)
    with (folder / "steps.jsonl").open("a", encoding="utf-8", buffering=1) as log:
        while True:
            start = time.monotonic()
            train_step(decoder, optimizer, model)
            step += 1
            now = time.monotonic()
            if rank == 0:
                log.write(json.dumps({"step": step, "ms": 1e3 * (now - start), "at": now}) + "\n")
            save(decoder, optimizer, folder, step)
            if rank == 0:
                log.write(json.dumps({"saved": step}) + "\n")


if __name__ == "__main__":
    main()
