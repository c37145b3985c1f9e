#!/usr/bin/python3
"""Observers of the user's own: the example built against installed headers, that what it sees is what is computed, and that
neither it nor faulty ones change anything.

    observer_plugins.py BINARY [CASE...]      BINARY lies in the build folder that is installed from
"""

import filecmp
import math
import re
import subprocess
import sys
import time

from plugins import ROOT, Bench, main, ran
from tests.support.recorded_runs import read_lines
from tests.support.run_cases import expect

EXAMPLE = ROOT / "examples" / "statistics"

OWN = r"""
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <thread>
#include "runtime/observers/observer.hpp"
#include "runtime/plugins/entry_point.hpp"
using namespace troupe;
using namespace troupe::observers;

struct Throws final : Observer {
  void see(const Observed&) override { throw std::runtime_error("of its own accord"); }
};
struct Hangs final : Observer {
  void see(const Observed&) override { for (;;) std::this_thread::sleep_for(std::chrono::hours(1)); }
};
struct Crashes final : Observer {
  void see(const Observed&) override { std::abort(); }
};
struct Sums final : Observer {  // Of squares, by step and kind; and the losses of samples by id.
  explicit Sums(const Place& place) : lines(place.folder / (place.options + std::to_string(place.node)), std::ios::app) { lines.precision(17); }
  void see(const Observed& part) override {
    std::size_t at = 0;
    for (std::size_t s = 0; s < part.ids.size(); ++s) {
      double squares = 0, sum = 0;
      for (auto left = part.rows[s] * part.width; left > 0; --left, ++at) squares += part.values[at] * part.values[at], sum += part.values[at];
      lines << "{\"step\":" << part.step << ",\"module\":\"" << part.module << "\",\"kind\":" << int(part.kind) << ",\"id\":\"" << part.ids[s]
            << "\",\"first\":" << part.first_rows[s] << ",\"squares\":" << squares << ",\"sum\":" << sum << "}\n";
    }
    if (at != part.values.size()) throw std::runtime_error("rows and values differ");
  }
  void see(const ObservedStep& step) override {
    lines << "{\"step\":" << step.step << ",\"committed\":" << step.committed << ",\"loss\":" << step.loss << ",\"trained\":" << step.trained_tokens
          << ",\"samples\":" << step.ids.size() << "}\n" << std::flush;
  }
  std::ofstream lines;
};

Status register_all() {
  for (auto kind : {ObserverKind{"throws", [](const Place&) { return std::make_unique<Throws>(); }},
                    ObserverKind{"hangs", [](const Place&) { return std::make_unique<Hangs>(); }},
                    ObserverKind{"crashes", [](const Place&) { return std::make_unique<Crashes>(); }},
                    ObserverKind{"sums", [](const Place& place) { return std::make_unique<Sums>(place); }},
                    ObserverKind{"is-none", [](const Place&) -> std::unique_ptr<Observer> { return nullptr; }},
                    ObserverKind{"cannot", [](const Place&) -> std::unique_ptr<Observer> { throw std::runtime_error("no place"); }}})
    if (auto added = register_observer(kind); !added.ok()) return added;
  return Done{};
}

TROUPE_PLUGIN(register_all)
"""
# A projector of which the first rows have no number, an infinite one, and one whose square is beyond a double.
VOIDS = r"""
#include <limits>
#include <memory>
#include <utility>
#include <vector>
#include "models/built_on.hpp"
#include "models/family/registry.hpp"
#include "models/plugin.hpp"
#include "runtime/plugins/entry_point.hpp"
using namespace troupe;
using namespace troupe::models;

struct Voids : Layer {
  explicit Voids(std::unique_ptr<Layer> of) : inner(std::move(of)) {}
  at::Tensor forward(const at::Tensor& rows, const PackedBatch& batch) override {
    const at::Tensor made = inner->forward(rows, batch);
    const at::Tensor odd = made.detach().clone().zero_();
    auto* first = odd.data_ptr<double>();
    first[0] = std::numeric_limits<double>::quiet_NaN();
    first[1] = -std::numeric_limits<double>::infinity();
    first[2] = 1e300;
    return made.add(odd);
  }
  std::vector<Parameter>& parameters() override { return inner->parameters(); }
  const std::unique_ptr<Layer> inner;
};

Status register_all() {
  Family family = built_on(*find_family("mlp"), "voids");
  family.make = [of = family.make](const ModuleConfig& module, int layer, std::vector<Parameter> list) -> std::unique_ptr<Layer> {
    return std::make_unique<Voids>(of(module, layer, std::move(list)));
  };
  return register_family(std::move(family));
}

TROUPE_PLUGIN(register_all)
"""
# The one of the README, which takes all that comes.
PAGE = (ROOT / "actors" / "observing" / "README.md").read_text(encoding="utf-8")
PLAIN = next(block for block in re.findall(r"```cpp\n(.*?)```", PAGE, re.DOTALL) if "behavior_type mine" in block)
# Beside it one that adds up the values of each step, and throws where it has no options.
ACTORS = r"""
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <utility>
#include "actors/observing/own_listener.hpp"
#include "runtime/plugins/entry_point.hpp"
using namespace troupe;
using namespace troupe::actors;

""" + PLAIN + r"""
ListenerActor::behavior_type adds(ListenerActor::pointer self, const ObservingHubActor& hub, const ListenRequest& request, const observers::Place& place) {
  self->request(hub, std::chrono::seconds(10), listen_atom::value, request).then([](const ListenWelcome&) {});
  const auto lines = std::make_shared<std::ofstream>(place.folder / (place.options + std::to_string(place.node)), std::ios::app);
  lines->precision(17);
  const auto sum = std::make_shared<double>(0);
  const bool throws = place.options.empty();
  return {
      [](here_atom, std::int32_t, std::int64_t) {},
      [](gone_atom, std::int32_t) {},
      [=](const SeenPiece& piece) {
        if (throws) throw std::runtime_error("of its own accord");
        for (std::size_t at = 0; at < piece.bytes.size(); at += sizeof(double)) {
          double value;
          std::memcpy(&value, piece.bytes.data() + at, sizeof value);
          *sum += value;
        }
        self->send(hub, took_atom::value, piece.node, weight_of(piece));
      },
      [=](const SeenStep& step) {
        *lines << "{\"step\":" << step.step << ",\"sum\":" << std::exchange(*sum, 0) << "}\n" << std::flush;
        self->send(hub, took_atom::value, step.node, weight_of(step));
      },
      [](lives_atom) {},
      [self](over_atom, std::int32_t, const std::string&) { self->quit(); },
      [](gone_atom, const std::string&) {},
  };
}

Status register_all() {
  for (const char* name : {"adds", "bursts"})
    if (auto added = register_listener({name, adds}); !added.ok()) return added;
  return register_listener({"plain", mine});
}

TROUPE_PLUGIN(register_all)
"""
ALL = "rows=true,gradients=true,losses=true"


class ObserverBench(Bench):
    example, library_name = EXAMPLE, "statistics.so"

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.own = self.built_beside(OWN)

    def seen_by(self, observer, name, *words, more=""):
        return [*self.job(name, "train.steps=4", *words), f'plugins.libraries=["{self.own}"]',
                f'observe.observers=[{{name="{observer}"{more}}}]']

    def unseen(self):
        if not (self.folder / "unseen").exists():
            ran(self.job("unseen", "train.steps=4", "observe.observers=[]"))
        return self.folder / "unseen"

    def same_bits(self, name):
        expect(filecmp.cmp(self.unseen() / "model" / "model.safetensors", self.folder / name / "model" / "model.safetensors",
                           shallow=False), f"{name}: an observer changed what was trained")


def the_example_trains_over_two_stages_like_its_reference(bench):
    ran(bench.job("stages"))
    bench.equal(bench.reference(), "stages")


def the_example_survives_a_killed_node_and_a_restart_and_equals_its_reference(bench):
    bench.survives("statistics", "balancer.policy=deferral")
    lines = [line for file in (bench.folder / "statistics" / "observers" / "statistics").iterdir() for line in read_lines(file)]
    expect({line["step"] % 2 for line in lines} == {0} and {line["module"] for line in lines} == {"vision"}, f"{lines[:2]}")
    expect({line["kind"] for line in lines} == {"rows", "gradients"}, f"{lines[:2]}")
    expect({line["step"] for line in lines} == set(range(2, 21, 2)), f"{sorted({line['step'] for line in lines})}")
    expect(all(line["rows"] > 0 and line["width"] == 96 and line["deviation"] > 0 for line in lines), f"{lines[:2]}")


def the_example_counts_what_is_no_number(bench):
    """A step without a finite loss may end the job. What is written is JSON, whatever was computed."""
    voids = bench.built_beside(VOIDS, "voids")
    profile = bench.folder / "voids.json"
    words = [f'plugins.libraries=["{bench.library}","{voids}"]', "modules.vision_projector.family=voids",
             'observe.observers=[{name="statistics",module="vision_projector"}]']
    ran([bench.binary, "profile", *bench.words(), *words, f"job.run_dir={bench.folder / 'measured'}", "--budget", "2", "--out", profile])
    command = bench.job("voids-run", "train.steps=1", *words, f"scheduler.profile={profile}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    said = f"exit {done.returncode}: {done.stdout[-1500:]}{done.stderr[-1500:]}"
    seen_in = bench.folder / "voids-run" / "observers" / "statistics"
    lines = [line for file in (seen_in.iterdir() if seen_in.exists() else ()) for line in read_lines(file)]
    expect(lines, said)
    for line in lines:
        expect(line["not_finite"] == 2 and line["largest"] == 1e300 and line["deviation"] is None, f"{line}")
        expect(0 < line["mean"] <= 1e300 / (line["rows"] * line["width"] - 2) * (1 + 1e-9), f"{line}")


def of_samples(folder):
    """{(step, module, kind, id): (sum, squares)} of all nodes, pieces of a sample added up, the words on steps of the first one,
    and how many pieces came behind another one."""
    seen, steps, pieces = {}, [], set()
    for file in sorted(folder.iterdir()):
        for line in read_lines(file):
            if "id" in line:
                key = (line["step"], line["module"], line["kind"], line["id"])
                expect((key, line["first"]) not in pieces, f"{key}, row {line['first']} was shown twice")
                pieces.add((key, line["first"]))
                before = seen.get(key, (0, 0))
                seen[key] = (before[0] + line["sum"], before[1] + line["squares"])
            elif file.name.endswith("0"):
                steps.append(line)
    return seen, steps, len(pieces) - len(seen)


def what_it_sees_is_what_is_computed_in_any_layout(bench):
    """Outputs, gradients and losses of each sample: the same on one node, over two stages with a cut encoder, and on replicas."""
    stages = lambda *texts: "parallel.pipelines=[{stages=[" + ",".join(texts) + "]}]"  # noqa: E731
    layouts = {"one": [stages('{node=0,vision="all",audio="all",llm="all"}'), "cluster.local_nodes=1"],
               "two": [stages("{node=0,vision=[0,2]}", '{node=1,vision=[2,4],audio="all",llm="all"}'), "scheduler.schedule=zero-bubble"],
               "late": [*bench.replicas, "scheduler.schedule=split-1f1b", "balancer.policy=deferral",
                        "debug.delayed_device_ms=0.3"],
               "shared": [*bench.replicas, "balancer.exchange=per-phase"]}
    found = {}
    for name, words in layouts.items():
        ran(bench.seen_by("sums", name, *words, more=f',{ALL},options="node-",queue=1000'))
        found[name], steps, pieces = of_samples(bench.folder / name / "observers" / "sums")
        metrics = read_lines(bench.folder / name / "metrics.jsonl")
        expect((pieces > 0) == (name == "shared"), f"{name}: {pieces} pieces")
        expect([line["step"] for line in steps] == [1, 2, 3, 4] and all(line["committed"] for line in steps), f"{steps}")
        expect([line["loss"] for line in steps] == [line["loss"] for line in metrics], f"{steps}")
        for step in steps:  # The losses of samples are those of the step.
            losses = [sum_ for (at, _, kind, _), (sum_, _) in found[name].items() if kind == 2 and at == step["step"]]
            expect(len(losses) == step["samples"] and math.isclose(sum(losses) / step["trained"], step["loss"], rel_tol=1e-12),
                   f"{name}, step {step}: {sum(losses) / step['trained']}")
        bench.equal(bench.unseen().name, name)
    kinds = {(module, kind) for _, module, kind, _ in found["one"]}
    encoders = {(module + end, kind) for module in ("vision", "audio") for end in ("", "_projector") for kind in (0, 1)}
    expect(kinds == encoders | {("llm", 2)}, f"{kinds}")
    for name in ("two", "late", "shared"):
        expect(found[name].keys() == found["one"].keys(), f"{name}: other samples, {len(found[name])} and {len(found['one'])}")
        for key, values in found["one"].items():
            for mine, theirs in zip(values, found[name][key]):
                expect(math.isclose(mine, theirs, rel_tol=1e-8, abs_tol=1e-12), f"{name}: {key}: {mine}, {theirs}")


def an_observer_changes_no_bit(bench):
    ran(bench.seen_by("sums", "seen", more=f',{ALL},options="node-"'))
    bench.same_bits("seen")


def an_actor_in_each_node_sees_what_an_observer_sees_and_changes_no_bit(bench):
    """One in each node process, with its typed messages; beside it one that throws, which is told of with its words, and the README's."""
    library = bench.built_beside(ACTORS, "acting")
    said = ran([*bench.job("actors", "train.steps=4"), f'plugins.libraries=["{bench.own}","{library}"]',
                'observe.observers=[{name="sums",options="node-",queue=1000},{name="adds",options="node-",queue=1000},{name="bursts"},{name="plain"}]'])
    seen_in = bench.folder / "actors" / "observers"
    seen, _, _ = of_samples(seen_in / "sums")
    heard = [line for file in (seen_in / "adds").iterdir() for line in read_lines(file)]
    for step in range(1, 5):
        shown = math.fsum(sum_ for (at, _, kind, _), (sum_, _) in seen.items() if (at, kind) == (step, 0))
        told = math.fsum(line["sum"] for line in heard if line["step"] == step)
        expect(shown != 0 and math.isclose(shown, told, rel_tol=1e-8, abs_tol=1e-8), f"step {step}: {shown}, {told}")
    expect("warning: observer 'bursts' on node 0 sees nothing any more: it throws: of its own accord" in said and "observer 'plain'" not in said, said[-1500:])
    bench.same_bits("actors")


def a_faulty_observer_ends_alone(bench):
    for observer, fault in (("throws", "it throws: of its own accord"), ("is-none", "its `make` gives none"), ("cannot", "it throws: no place")):
        said = ran(bench.seen_by(observer, observer))
        expect(f"warning: observer '{observer}' on node 0 sees nothing any more: {fault}" in said, f"{observer}: {said[-1500:]}")
        bench.same_bits(observer)


def one_that_hangs_misses_parts_and_holds_nothing_up(bench):
    begin = time.monotonic()
    said = ran(bench.seen_by("hangs", "hangs", more=",queue=2"))
    expect("observers were shown " in said and " and missed " in said and "raise observe.observers[].every_steps or queue" in said, said[-1500:])
    bench.same_bits("hangs")
    expect(time.monotonic() - begin < 60, "the job waited for it")


def one_that_crashes_takes_its_node_along(bench):
    """It runs in the node's process: where that held a last copy, and no checkpoint is there, the job ends, and saves the rest once
    there are steps."""
    done = subprocess.run(bench.seen_by("crashes", "crashes"), capture_output=True, text=True, timeout=120)
    said = done.stdout + done.stderr
    expect(done.returncode in (1, 75) and "was lost: was killed by signal 6" in said, f"exit {done.returncode}\n{said[-1500:]}")


def a_job_is_told_of_its_mistakes(bench):
    said = bench.said("validate", *bench.words(), "plugins.libraries=[]")
    expect("observe.observers[0].name" in said and "'statistics'" in said, said)
    said = bench.said("validate", *bench.words(), 'observe.observers=[{name="statistics",module="visoin"}]')
    expect("no module is called 'visoin'" in said, said)
    said = bench.said("validate", *bench.words(), 'observe.observers=[{module="vision"}]')
    expect("name is missing" in said, said)


def a_node_without_the_plugin_trains_and_says_so(bench):
    """Of another machine: what observers see is no part of training."""
    with bench.waiting_for_nodes("without") as (job, join):
        nodes = [join() for _ in range(2)]
        job.wait_for(3)
        job.stop()
        for node in nodes:
            node.wait(timeout=60)
    log = (bench.folder / "without" / "train.log").read_text()
    expect("observer 'statistics' on node 0 sees nothing any more: nothing is called so" in log, log[-1500:])


def a_new_observer_passes_its_own_test_under_its_own_name(bench):
    folder = bench.folder / "mine"
    said = ran([bench.binary, "new", "observer", "mine", "--dir", folder])
    expect("an observer of your own" in said and f"Next:  {folder}/test.sh {bench.prefix}" in said, said)
    expect(not any("statistics" in path.read_text() for path in folder.iterdir()), "the example's name is left in it")
    (folder / "data").symlink_to(bench.folder / "data")
    said = ran([folder / "test.sh", bench.prefix])
    expect('"module":"vision","kind":"rows"' in said, said[-800:])


CASES = [the_example_trains_over_two_stages_like_its_reference,
         the_example_survives_a_killed_node_and_a_restart_and_equals_its_reference, the_example_counts_what_is_no_number, what_it_sees_is_what_is_computed_in_any_layout,
         an_observer_changes_no_bit, an_actor_in_each_node_sees_what_an_observer_sees_and_changes_no_bit, a_faulty_observer_ends_alone, one_that_hangs_misses_parts_and_holds_nothing_up,
         one_that_crashes_takes_its_node_along, a_job_is_told_of_its_mistakes, a_node_without_the_plugin_trains_and_says_so,
         a_new_observer_passes_its_own_test_under_its_own_name]


if __name__ == "__main__":
    sys.exit(main(ObserverBench, CASES, *sys.argv[1:]))
