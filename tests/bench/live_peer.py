#!/usr/bin/env python3
"""The configurations of live_bench.py under torch.distributed.pipelining: 1F1B, gloo, two processes, one thread each.

    ~/.cache/troupe/reference-*/bin/python tests/bench/live_peer.py [--runs N] [--steps N] [--minutes N]
        [--results FILE] [CONFIGURATION...]

Same layers (model_peer.py), same cut, same batches in the order of arrival, same number of microbatches, AdamW. That
library freezes the shapes between stages at the first step, so rows are padded there to the largest microbatch of
all steps; stages cut the padding off before they compute, which is the least that a user can do. Data are made up
and ready in memory, while live_bench.py decodes files beside its training. A configuration without a model of its own
(real-mini.toml: two pipelines on four processes) has no peer here. Results go into the file of live_bench.py.
"""

import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

try:
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
except ImportError:
    sys.exit(77)  # No peer here: scripts/setup --reference installs it.

import live_bench
import live_results
import model_peer
from live_configurations import BASELINE_SCHEDULE, CONFIGURATIONS, JOB, MEDIA, overrides

WIDTH = 128
SHAPES = live_bench.BINARY.parent / "bench" / "prediction_bench"


class First(nn.Module):
    """Encoders, projectors and the first decoder blocks, if any; pads its rows to `rows_max`."""

    def __init__(self, depth, layers, feed):
        super().__init__()
        self.vision, self.audio = model_peer.Vision(depth=depth), model_peer.Audio()
        self.vision_projector, self.audio_projector = model_peer.projector(128), model_peer.projector(64)
        self.decoder = model_peer.Decoder(layers=layers) if layers else None
        self.feed = feed

    def forward(self, index):
        batch = self.feed.batch(index)
        media = []
        if batch["grids"]:
            media.append((batch["vision_at"], self.vision_projector(self.vision(batch["patches"], batch["grids"]))))
        if batch["windows"]:
            media.append((batch["audio_at"], self.audio_projector(self.audio(batch["frames"], batch["windows"]))))
        if self.decoder:
            rows = embed(self.decoder, batch, media)
            for layer in self.decoder.layers:
                rows = layer(rows, *angles(batch), batch["segments"])
        else:
            rows = torch.cat([torch.zeros(0, WIDTH), *(rows for _, rows in media)])
        return nn.functional.pad(rows, (0, 0, 0, self.feed.rows_max - len(rows)))[None]


class Last(nn.Module):
    """The other decoder blocks, norm, head and loss."""

    def __init__(self, layers, embeds, feed):
        super().__init__()
        self.decoder, self.embeds, self.feed = model_peer.Decoder(layers=layers), embeds, feed
        self.next = 0

    def forward(self, rows):
        batch = self.feed.batch(self.next % self.feed.microbatches)
        self.next += 1
        if self.embeds:
            vision = len(batch["vision_at"])
            audio = len(batch["audio_at"])
            media = [(batch["vision_at"], rows[0, :vision]), (batch["audio_at"], rows[0, vision:vision + audio])]
            x = embed(self.decoder, batch, media)
        else:
            x = rows[0, : len(batch["ids"])]
        for layer in self.decoder.layers:
            x = layer(x, *angles(batch), batch["segments"])
        targets = torch.cat([nn.functional.pad(l[1:], (0, 1), value=-100) for l in batch["labels"].split(batch["segments"])])
        chosen = (targets != -100).nonzero()[:, 0]
        logits = self.decoder.head(self.decoder.norm(x[chosen]))
        return nn.functional.cross_entropy(logits, targets[chosen], reduction="sum")[None]


def embed(decoder, batch, media):
    x = decoder.embed(batch["ids"])
    for where, rows in media:
        x = x.index_copy(0, where, rows)
    return x


def angles(batch):
    dim = WIDTH // 4
    positions = torch.cat([torch.arange(s) for s in batch["segments"]]).float()
    turns = positions[:, None] * 10000 ** (-torch.arange(0, dim, 2).float() / dim)
    turns = torch.cat((turns, turns), -1)[:, None]
    return turns.cos(), turns.sin()


class Feed:
    """Microbatches of all steps, made once."""

    def __init__(self, lines, microbatches, embeds_last):
        self.steps, self.microbatches = [], microbatches
        for line in lines:
            samples = json.loads(line)
            size = -(-len(samples) // microbatches)
            self.steps.append([model_peer.make_batch(samples[i:i + size]) for i in range(0, len(samples), size)])
        rows = [[len(b["vision_at"]) + len(b["audio_at"]) if embeds_last else len(b["ids"]) for b in step]
                for step in self.steps]
        flat = [count for step in rows for count in step]
        self.rows_max = max(flat)
        self.padded = len(flat) * self.rows_max / max(1, sum(flat)) - 1
        self.step = 0

    def batch(self, index):
        return self.steps[self.step][int(index)]


def rank_main(configuration, path, report):
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    torch.manual_seed(7)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    form = CONFIGURATIONS[configuration].form
    _, depth, layers, first_layers = form.model
    feed = Feed(pathlib.Path(path).read_text(encoding="utf-8").splitlines(), form.microbatches, first_layers == 0)
    module = First(depth, first_layers, feed) if rank == 0 else Last(layers - first_layers, first_layers == 0, feed)
    rows = torch.zeros(1, feed.rows_max, WIDTH)
    example = (torch.zeros(1, dtype=torch.long), rows) if rank == 0 else (rows, torch.zeros(1))
    stage = PipelineStage(module, rank, 2, torch.device("cpu"), input_args=(example[0],), output_args=(example[1],))
    schedule = Schedule1F1B(stage, form.microbatches, loss_fn=lambda out, _: out.sum(), scale_grads=False)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4, fused=True)
    times = []
    for feed.step in range(len(feed.steps)):
        dist.barrier()
        begin = time.perf_counter()
        if rank == 0:
            schedule.step(torch.arange(form.microbatches))
        else:
            module.next = 0
            schedule.step(target=torch.zeros(form.microbatches), losses=[])
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        dist.barrier()
        times.append(1e3 * (time.perf_counter() - begin))
    if rank == 1:
        pathlib.Path(report).write_text(json.dumps([times, feed.padded]), encoding="utf-8")
    dist.destroy_process_group()


def run(configuration, steps, folder):
    """Steps that count, and by how much rows are padded, as live_results.py keeps them."""
    shapes = subprocess.run([str(SHAPES), "shapes", "0", str(steps), str(JOB), *overrides(configuration, folder)],
                            check=True, stdout=subprocess.PIPE, text=True).stdout
    path, report = pathlib.Path(folder) / "shapes", pathlib.Path(folder) / "report"
    path.write_text(shapes, encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    ranks = [subprocess.Popen([sys.executable, __file__, "--rank", configuration, str(path), str(report)],
                              env={**environment, "RANK": str(rank)}) for rank in range(2)]
    try:  # A rank without the other would wait for minutes.
        while any(process.poll() is None for process in ranks) and not any(process.returncode for process in ranks):
            time.sleep(0.05)
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    if failed := [process.returncode for process in ranks if process.returncode != 0]:
        raise SystemExit(f"a process of the peer ended with {failed[0]}")
    times, padded = json.loads(report.read_text(encoding="utf-8"))
    return {"steps_ms": times[live_bench.WARM_UP:], "padded": padded}


def main():
    if sys.argv[1:2] == ["--rank"]:
        return rank_main(*sys.argv[2:5])
    arguments = live_bench.read_arguments()
    if not MEDIA.is_dir() or not SHAPES.exists():
        print(f"skipped: no {MEDIA} or no {SHAPES} (scripts/bench prediction builds it)", file=sys.stderr)
        return 77
    arguments.configurations = [label for label in arguments.configurations if CONFIGURATIONS[label].form.model]
    rows = [(BASELINE_SCHEDULE, live_results.PEER)]
    with tempfile.TemporaryDirectory(prefix="troupe-live-peer-") as folder:
        records = live_bench.record_runs(
            live_bench.planned_runs(arguments, rows), arguments.results or f"{folder}/results", arguments.minutes,
            lambda head: run(head["configuration"], head["steps"], folder))
    for label in arguments.configurations:
        for row in live_results.rows(records, label).values():
            if row.policy != live_results.PEER:
                continue
            padded = next(record["padded"] for record in records
                          if record.get("configuration") == label and "padded" in record)
            print(json.dumps({"measure": f"step, {label}, {row.policy}", "value": row.step_ms, "unit": "ms",
                              "better": "lower", "size": f"{row.runs} runs; rows between stages padded by "
                                                         f"{100 * padded:.0f} %"}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
