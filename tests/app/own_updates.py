#!/usr/bin/python3
"""Parameters that a family moves by a rule of its own (examples/balanced): the same on every layout, saved, moved and gone on with.

    own_updates.py BINARY [CASE...]
"""

import json
import struct
import subprocess
import sys

import plugins
from plugins import ROOT, STEPS, Bench, expect, ran

RATE = 0.01

# The example with a rule that throws; its library is loaded before.
TIRED = """#include <stdexcept>
#include "models/plugin.hpp"
using namespace troupe;
using namespace troupe::models;
static Status register_all() {
  Family family = *find_family("balanced");
  family.name = "tired";
  family.update = [](const ModuleConfig&, const ParameterUpdate&) { throw std::runtime_error("too tired"); };
  return register_family(std::move(family));
}
TROUPE_PLUGIN(register_all)
"""


class Balanced(Bench):
    example, library_name = ROOT / "examples" / "balanced", "balanced.so"

    def biases(self, name):
        """All values of the routers' biases, of a model in fp64."""
        data = (self.folder / name / "model/model.safetensors").read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        header, body = json.loads(data[8:8 + length]), data[8 + length:]
        found = []
        for tensor in sorted(header):
            if not tensor.startswith("vision.mixtures.") or not tensor.endswith(".bias") or "norm" in tensor:
                continue
            begin, end = header[tensor]["data_offsets"]
            found += struct.unpack(f"<{(end - begin) // 8}d", body[begin:end])
        return found


def its_layers_keep_what_stages_promise(bench):
    """What is contributed is no gradient, and not held for one."""
    bench.keeps_its_promises()


def two_stages_train_what_one_process_does(bench):
    ran(bench.job("two-stages"))
    bench.equal(bench.reference(), "two-stages")


def the_rule_moves_by_its_rate_and_nothing_else_does(bench):
    """A step moves a bias by the rate, up or down, or not at all."""
    found = bench.biases(bench.reference())
    expect(len(found) == 2 * 4, f"{len(found)} values")
    expect(any(found) and all(abs(value) < RATE * (STEPS + 0.5) for value in found), f"{found}")
    expect(all(abs(value / RATE - round(value / RATE)) < 1e-6 for value in found), f"{found}")
    ran(bench.job("still", "modules.vision.config.rate=0"))
    expect(not any(bench.biases("still")), f"{bench.biases('still')}")


def the_plans_own_reference_has_its_bits(bench):
    words = ["scheduler.schedule=zero-bubble", "train.microbatches=4", *bench.deferral, *bench.replicas]
    ran(bench.job("replicas", *words))
    ran(bench.job("replayed", *words, "--reference", "--microbatches", "plan"))
    models = [(bench.folder / name / "model/model.safetensors").read_bytes() for name in ("replicas", "replayed")]
    expect(models[0] == models[1], "other bits")
    bench.equal(bench.reference(), "replicas")


def a_killed_node_and_a_restart_change_nothing(bench):
    bench.survives("survivor", *bench.deferral)


def a_frozen_module_is_moved_by_no_rule(bench):
    ran(bench.job("frozen", "modules.vision.freeze=true"))
    ran(bench.job("reference-frozen", "modules.vision.freeze=true", "--reference"))
    bench.equal("reference-frozen", "frozen")
    expect(not any(bench.biases("frozen")), f"{bench.biases('frozen')}")


def a_rule_that_throws_ends_a_reference_and_a_job_in_order_by_its_name(bench):
    words = [f'plugins.libraries=["{bench.library}","{bench.built_beside(TIRED)}"]', "modules.vision.family=tired"]
    said = bench.said(*bench.job("tired", *words, "--reference")[1:])
    expect("`update` of family 'tired' throws: too tired" in said and "fix: correct the plug-in" in said and "defect" not in said, said)
    # Behind COMMIT, where other parameters of the stage have moved.
    done = subprocess.run(bench.job("tired-stages", *words), capture_output=True, text=True, timeout=120, check=False)
    said = done.stdout + done.stderr
    expect(done.returncode in (1, 75) and "`update` of family 'tired' throws: too tired, in step 1 on device 0" in said, f"exit {done.returncode}\n{said[-1500:]}")


CASES = [its_layers_keep_what_stages_promise, two_stages_train_what_one_process_does, the_rule_moves_by_its_rate_and_nothing_else_does,
         the_plans_own_reference_has_its_bits, a_killed_node_and_a_restart_change_nothing, a_frozen_module_is_moved_by_no_rule,
         a_rule_that_throws_ends_a_reference_and_a_job_in_order_by_its_name]

if __name__ == "__main__":
    sys.exit(plugins.main(Balanced, CASES, *sys.argv[1:]))
