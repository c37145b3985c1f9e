#!/usr/bin/python3
"""Layers that add a loss of their own and write their own backward (examples/mixture): trained alike on every layout.

    own_losses.py BINARY [CASE...]
"""

import subprocess
import sys

import plugins
from plugins import ROOT, Bench, expect, ran, read_lines

LOSS = "vision.balance"


class Mixture(Bench):
    example, library_name = ROOT / "examples" / "mixture", "mixture.so"

    def losses(self, name):
        return [line["auxiliary_losses"][LOSS] for line in read_lines(self.folder / name / "metrics.jsonl")]


def expect_equal(ours, theirs):
    expect(len(ours) == len(theirs) > 0, f"{len(ours)} and {len(theirs)} steps")
    worst = max(abs(a - b) / b for a, b in zip(ours, theirs))
    expect(worst < 1e-10, f"the losses of the layers differ by {worst}")


def its_layers_keep_what_stages_promise(bench):
    """Their backward among it: a wrong one trains alike on every layout, and with `--reference`, too."""
    bench.keeps_its_promises()


def two_stages_train_what_one_process_does(bench):
    ran(bench.job("two-stages"))
    bench.equal(bench.reference(), "two-stages")
    expect_equal(bench.losses("two-stages"), bench.losses(bench.reference()))
    # Four experts that are busy alike have 1 for each of two layers: twice the weight of 0.01.
    expect(all(0.019 < loss < 0.08 for loss in bench.losses("two-stages")), f"{bench.losses('two-stages')}")


def the_plans_own_reference_has_its_bits(bench):
    words = ["scheduler.schedule=zero-bubble", "train.microbatches=4", "balancer.policy=deferral", *bench.replicas]
    ran(bench.job("replicas", *words))
    ran(bench.job("replayed", *words, "--reference", "--microbatches", "plan"))
    models = [(bench.folder / name / "model/model.safetensors").read_bytes() for name in ("replicas", "replayed")]
    expect(models[0] == models[1], "other bits")
    bench.equal(bench.reference(), "replicas")
    expect_equal(bench.losses("replicas"), bench.losses(bench.reference()))


def it_counts(bench):
    """Without it other parameters are trained, and with more of it the experts are busier alike."""
    ran(bench.job("without", "modules.vision.config.balance=0"))
    ran(bench.job("strong", "modules.vision.config.balance=10"))
    expect(all(loss == 0 for loss in bench.losses("without")), f"{bench.losses('without')}")
    ran(bench.job("reference-strong", "modules.vision.config.balance=10", "--reference"))
    bench.equal("reference-strong", "strong")
    model = "model/model.safetensors"
    expect((bench.folder / "without" / model).read_bytes() != (bench.folder / "strong" / model).read_bytes(), "it trains nothing")
    first, *_, last = bench.losses("strong")
    expect(last < first, f"from {first} to {last}")


def a_stage_kind_that_collects_no_losses_is_refused(bench):
    """The example's stages, for the audio's family, get the layers of the pictures too; without an error they would train without their loss."""
    frugal = bench.built(ROOT / "examples" / "frugal") / "frugal.so"
    words = bench.job("uncollected", f'plugins.libraries=["{bench.library}","{frugal}"]', "train.steps=2")
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    said = done.stdout + done.stderr
    expect(done.returncode != 0 and "the auxiliary loss 'balance' would not be trained: the stage kind that runs this layer" in said,
           f"exit {done.returncode}\n{said[-1500:]}")


def a_killed_node_and_a_restart_change_nothing(bench):
    bench.survives("survivor", "balancer.policy=deferral")
    expect_equal(bench.losses("survivor"), bench.losses(bench.reference()))


def a_frozen_module_shows_it_and_trains_nothing(bench):
    ran(bench.job("frozen", "modules.vision.freeze=true"))
    ran(bench.job("reference-frozen", "modules.vision.freeze=true", "--reference"))
    bench.equal("reference-frozen", "frozen")
    expect_equal(bench.losses("frozen"), bench.losses("reference-frozen"))


CASES = [its_layers_keep_what_stages_promise, two_stages_train_what_one_process_does, the_plans_own_reference_has_its_bits, it_counts,
         a_stage_kind_that_collects_no_losses_is_refused, a_killed_node_and_a_restart_change_nothing, a_frozen_module_shows_it_and_trains_nothing]

if __name__ == "__main__":
    sys.exit(plugins.main(Mixture, CASES, *sys.argv[1:]))
