#!/usr/bin/python3
"""Distillation (examples/distill): a frozen teacher whose rows enter the llm's last layer, trained alike on every layout.

    teacher_plugins.py BINARY [CASE...]      BINARY lies in the build folder that is installed from
"""

import json
import sys

import plugins
from parity_layouts import by_replicas
from plugins import ROOT, Bench, expect, ran
from tests.support.recorded_runs import read_safetensors

EXAMPLE = ROOT / "examples" / "distill"
# Two encoders, three teachers, two llms.
REPLICAS = by_replicas(('"vision","audio"', *['{node=N,vision="all",audio="all"}'] * 2),
                       ('"teacher"', *['{node=N,teacher="all"}'] * 3),
                       ('"llm"', *['{node=N,llm="all"}'] * 2))

# Rows come from the other node and from the same one.
TWO_NODES = ['parallel.pipelines=[{stages=[{node=0,vision="all",audio="all"},{node=1,teacher="all",llm="all"}]}]', "cluster.local_nodes=2"]

# A job whose llm is the teacher's size.
LARGE = """
[modules.vision]
kind = "encoder"
family = "qwen2-vl"
config = { depth = 1, embed_dim = 64, num_heads = 4, hidden_size = 128 }

[modules.audio]
kind = "encoder"
family = "whisper"
config = { encoder_layers = 1, d_model = 64, encoder_attention_heads = 4, encoder_ffn_dim = 128 }

[modules.audio_projector]
kind = "projector"

[modules.llm]
kind = "llm"
config = { num_hidden_layers = 3, hidden_size = 128, intermediate_size = 352 }

"""


class Distill(Bench):
    example, library_name, replicas = EXAMPLE, "distill.so", REPLICAS
    frozen = ("teacher",)

    def model(self, name):
        return self.folder / name / "model" / "model.safetensors"


def its_layers_keep_what_stages_promise(bench):
    """The teacher's, too, which do not train."""
    bench.keeps_its_promises()


def two_nodes_train_what_one_process_does(bench):
    ran(bench.job("two-nodes", *TWO_NODES))
    bench.equal(bench.reference(), "two-nodes")


def three_stages_train_what_one_process_does(bench):
    ran(bench.job("stages"))
    bench.equal(bench.reference(), "stages")
    plan = json.loads((bench.folder / "stages" / "plan.json").read_text())
    place, = [number for number, stage in enumerate(plan["stages"]) if stage["runs"][0]["module"] == "teacher"]
    slices = [event["args"] for event in json.loads((bench.folder / "stages" / "trace.json").read_text()) if event["ph"] == "X"]
    count = lambda stage, kind: sum(one.get("stage_id") == stage and one["kind"] == kind for one in slices)  # noqa: E731
    last = len(plan["stages"]) - 1
    expect(count(place, "send") == count(place, "forward") > 0, "it sends each microbatch once")
    expect(count(place, "backward") == count(place, "receive_gradient") == 0, "nothing goes back to it")
    expect(count(last, "receive") == 2 * count(last, "forward"), f"{count(last, 'receive')}: rows of the llm's layers before, and the teacher's")


def the_plans_own_reference_has_its_bits(bench):
    words = ["scheduler.schedule=zero-bubble", "train.microbatches=4", "balancer.policy=deferral", *bench.replicas]
    ran(bench.job("replicas", *words))
    ran(bench.job("replayed", *words, "--reference", "--microbatches", "plan"))
    expect(bench.model("replicas").read_bytes() == bench.model("replayed").read_bytes(), "other bits")
    bench.equal(bench.reference(), "replicas")


def an_exchange_per_phase_trains_the_same(bench):
    ran(bench.job("exchanged", *bench.replicas, "balancer.exchange=per-phase", "scheduler.schedule=split-1f1b", "train.microbatches=2"))
    bench.equal(bench.reference(), "exchanged")


def it_teaches(bench):
    """Its rows count: another share, another temperature and another teacher train other parameters, and none trains a plain llama's."""
    ran(bench.job("own"))
    own = bench.model("own").read_bytes()
    for word in ("modules.llm.config.teacher_share=0.9", "modules.llm.config.temperature=1", "modules.teacher.initializer_range=0.5"):
        ran(bench.job("other", word, "--fresh"))
        expect(bench.model("other").read_bytes() != own, f"{word} trains the same")
    ran(bench.job("untaught", "modules.llm.config.teacher_share=0"))
    ran(bench.job("untaught-other", "modules.llm.config.teacher_share=0", "modules.teacher.initializer_range=0.5"))
    trained = [{name: value for name, value in read_safetensors(bench.model(name)).items() if not name.startswith("teacher.")}
               for name in ("untaught", "untaught-other")]
    expect(trained[0] == trained[1], "a share of nothing depends on the teacher")


def it_begins_from_the_llm_of_a_run(bench):
    """And stays what it was: a teacher does not train."""
    job = bench.folder / "large.toml"
    job.write_text(LARGE + f"[[data.sources]]\n{bench.own_source()}\n")
    large = bench.folder / "large"
    ran([bench.binary, "train", job, f"job.run_dir={large}", "train.steps=4", "train.dtype=fp64", "train.global_batch_size=8", "data.max_pixels=12544"])
    words = [f'modules.teacher.init="{large}"']
    ran(bench.job("from-large", *words))
    ran(bench.job("from-large-reference", *words, "--reference"))
    bench.equal("from-large-reference", "from-large")
    there, here = read_safetensors(bench.model("large")), read_safetensors(bench.model("from-large"))
    taken = [name for name in here if name.startswith("teacher.")]
    expect(len(taken) > 10, f"{taken}")
    for name in taken:
        expect(here[name] == there["llm." + name.removeprefix("teacher.")], f"{name} is another one")
    said = bench.said("validate", *bench.words(), *words, "modules.teacher.config.num_hidden_layers=4")
    expect("modules.teacher.init" in said and "lacks" in said, said)


def a_killed_node_and_a_restart_change_nothing(bench):
    bench.survives("survivor", "balancer.policy=deferral")


def it_is_planned_measured_and_simulated(bench):
    auto = [*bench.words(), "parallel.mode=auto", "parallel.pipelines=[]", "cluster.local_nodes=3"]
    plan = ran([bench.binary, "plan", *auto])
    expect("teacher" in plan, plan[-800:])
    ran(bench.job("automatic", "parallel.mode=auto", "parallel.pipelines=[]"))
    bench.equal(bench.reference(), "automatic")
    simulated = ran([bench.binary, "simulate", *bench.words(), "--json"])
    expect(json.loads(simulated), simulated[:200])


def what_a_teacher_is_not_is_said(bench):
    for word, where, what in (("modules.teacher.freeze=false", "modules.teacher.freeze", "a teacher does not train"),
                              ('modules.teacher.next="audio_projector"', "modules.teacher.next", "the llm's last layer"),
                              ('modules.vision.next="teacher"', "modules.vision.next", "teachers read text"),
                              ('modules.teacher.family="llama"', "modules.teacher.family", "no family of this kind"),
                              ("modules.teacher.config.vocab_size=100", "modules.teacher.config.vocab_size", "less than the tokenizer's")):
        said = bench.said("validate", *bench.words(), word)
        expect(where in said and what in said and "fix" in said, said)


CASES = [its_layers_keep_what_stages_promise, two_nodes_train_what_one_process_does, three_stages_train_what_one_process_does,
         the_plans_own_reference_has_its_bits, an_exchange_per_phase_trains_the_same, it_teaches,
         it_begins_from_the_llm_of_a_run, a_killed_node_and_a_restart_change_nothing, it_is_planned_measured_and_simulated,
         what_a_teacher_is_not_is_said]

if __name__ == "__main__":
    sys.exit(plugins.main(Distill, CASES, *sys.argv[1:]))
