"""torch.distributed.checkpoint beside checkpoint_bench.py: as many tensors, as many processes, nothing else to do.

    checkpoint_dcp.py FOLDER PROCESSES BYTES

Each process holds its share of a state in fp32 and saves it into FOLDER once before what is measured. Prints one line
of JSON: `seconds` from the order to the complete checkpoint, and `stall_s`: how long `async_save`, which copies first,
keeps the caller.
"""

import json
import os
import pathlib
import shutil
import socket
import sys
import time
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp

TENSORS = 90  # Of a process: values and two moments of some 30 parameters.


def work(rank, processes, folder, size, port):
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=processes)
    elements = size // 4 // processes // TENSORS
    state = {f"rank{rank}.{i}": torch.randn(elements) for i in range(TENSORS)}
    measured = {}
    for name in ("warm-up", "seconds", "stall_s"):
        dist.barrier()
        begin = time.monotonic()
        if name == "stall_s":
            saving = dcp.async_save(state, checkpoint_id=folder / name)
            measured[name] = time.monotonic() - begin
            saving.result()
        else:
            dcp.save(state, checkpoint_id=folder / name)
            dist.barrier()
            measured[name] = time.monotonic() - begin
        dist.barrier()
        if rank == 0:
            shutil.rmtree(folder / name)
    if rank == 0:
        del measured["warm-up"]
        print(json.dumps(measured), flush=True)
    dist.destroy_process_group()


def main():
    folder, processes, size = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    os.environ["OMP_NUM_THREADS"] = "1"
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    mp.spawn(work, args=(processes, folder, size, port), nprocs=processes)


if __name__ == "__main__":
    main()
