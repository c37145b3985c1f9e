#!/usr/bin/python3
"""Stages without the engine's own one inside (examples/frugal), built against installed headers alone: they keep what stages
promise, and train what the engine's stages train.

    frugal_stages.py BINARY [CASE...]      BINARY lies in the build folder that is installed from
"""

import json
import subprocess
import sys

from plugins import ROOT, Bench, main, ran
from tests.support.run_cases import expect


class FrugalBench(Bench):
    example, library_name = ROOT / "examples" / "frugal", "frugal.so"


def it_keeps_what_stages_promise(bench):
    bench.keeps_its_promises()


def it_trains_what_the_engines_own_stages_train(bench):
    ran(bench.job("two-stages"))
    ran(bench.job("built-in", "plugins.libraries=[]"))
    bench.equal("built-in", "two-stages")
    bench.equal(bench.reference(), "two-stages")


def it_survives_a_killed_node_and_a_restart_on_replicas_with_deferral(bench):
    bench.survives("replicas", "balancer.policy=deferral")


def a_frozen_encoder_keeps_nothing_and_trains_nothing(bench):
    frozen = ["modules.vision.freeze=true", "modules.vision_projector.freeze=true", "train.steps=6"]
    ran(bench.job("frozen", *frozen))
    ran(bench.job("frozen-reference", *frozen, "--reference"))
    bench.equal("frozen-reference", "frozen")


def a_stage_that_it_cannot_run_is_refused_by_its_name(bench):
    """Its author lets it have stages of every family; the llm's is none that it can run."""
    source, families = (bench.example / "frugal.cpp").read_text(), '{"qwen2-vl", "whisper"}'
    expect(families in source, "the example names its families in another way")
    words = bench.job("every-family", f'plugins.libraries=["{bench.built_beside(source.replace(families, "{}"))}"]', "train.steps=2")
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    expect(done.returncode == 2 and "stage kind 'frugal' runs encoders alone" in done.stderr, f"exit {done.returncode}\n{done.stderr[-1500:]}")


def plans_go_by_the_costs_that_it_states(bench):
    """Backwards of encoders take a forward longer, and nothing of their layers is kept meanwhile; the llm's stage is planned as ever."""
    own, plain = (json.loads(ran([bench.binary, "plan", *bench.words(), *more, "--json"]))["stages"] for more in ([], ["plugins.libraries=[]"]))
    expect([stage["stage_kind"] for stage in own] == ["frugal", ""], f"{own}")
    longer = [stage["work_ms"] / other["work_ms"] for stage, other in zip(own, plain)]
    expect(1.1 < longer[0] < 1.5 and abs(longer[1] - 1) < 0.05, f"work, in that of the engine's own stages: {longer}")
    expect(own[0]["memory_bytes"] < plain[0]["memory_bytes"], f"{own[0]}\n{plain[0]}")
    said = ran([bench.binary, "plan", *bench.words()])
    expect("stage kind 'frugal' runs 1 of 2 stages" in said and "costs that it states" in " ".join(said.split()), said)


def replays_by_templates_go_by_them_too(bench):
    rates = []
    for more in ([], ["plugins.libraries=[]"]):
        said = ran([bench.binary, "replay", *bench.words(), *more, "--cluster", "2x1xA40-48G", "--failure-every", "1h", "--json"])
        rates.append([played["samples_per_s"] for played in json.loads(said)["recovery"].values()])
    expect(rates[0] and all(0 < own < plain for own, plain in zip(*rates)), f"samples a second, by its costs and by those of layers: {rates}")


def who_looks_at_its_modules_is_told_once_that_it_shows_nothing(bench):
    statistics = bench.built(ROOT / "examples" / "statistics") / "statistics.so"
    words = [f'plugins.libraries=["{bench.library}","{statistics}"]', "train.steps=4"]
    said = {}
    for name, more in (("all", ""), ("llm", ',module="llm",losses=true')):
        ran(bench.job(name, *words, f'observe.observers=[{{name="statistics"{more}}}]'))
        said[name] = [line for line in (bench.folder / name / "train.log").read_text().splitlines() if "observers see nothing of" in line]
    expect(len(said["all"]) == 1 and "vision, vision_projector, audio, audio_projector" in said["all"][0] and "`show_to`" in said["all"][0], f"{said}")
    expect(not said["llm"], f"{said}")


CASES = [it_keeps_what_stages_promise, it_trains_what_the_engines_own_stages_train,
         it_survives_a_killed_node_and_a_restart_on_replicas_with_deferral, a_frozen_encoder_keeps_nothing_and_trains_nothing,
         a_stage_that_it_cannot_run_is_refused_by_its_name, plans_go_by_the_costs_that_it_states,
         replays_by_templates_go_by_them_too, who_looks_at_its_modules_is_told_once_that_it_shows_nothing]

if __name__ == "__main__":
    sys.exit(main(FrugalBench, CASES, *sys.argv[1:]))
