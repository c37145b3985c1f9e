#!/usr/bin/python3
"""Stages of the user's own: the example built against installed headers, which stages a kind gets, and what faulty ones say.

    stage_plugins.py BINARY [CASE...]      BINARY lies in the build folder that is installed from
"""

import filecmp
import json
import os
import re
import subprocess
import sys
from unittest import mock

from plugins import ROOT, Bench, Running, main, ran
from tests.support.recorded_runs import read_lines, read_lines_so_far
from tests.support.run_cases import expect

EXAMPLE = ROOT / "examples" / "sentry"

# Which of them is registered, a variable says.
OWN = r"""
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <c10/util/Exception.h>
#include <ATen/Context.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand_like.h>
#include "engine/execution/stage_filter.hpp"
#include "engine/execution/stage_kinds.hpp"
#include "runtime/plugins/entry_point.hpp"
#include "runtime/state/tensor_hash.hpp"
using namespace troupe;
using namespace troupe::engine;
using Made = Result<std::unique_ptr<StageProgram>>;

struct Throws final : StageFilter {
  using StageFilter::StageFilter;
  Status backward(PartKey) override { throw std::runtime_error("of its own accord"); }
};

// Throws where it is asked for the trained model.
struct KeepsModel final : StageFilter {
  using StageFilter::StageFilter;
  std::vector<models::Parameter*> parameters() override { throw std::runtime_error("not yours"); }
};

// The same for gradients of the first step: it has told of its losses then.
struct KeepsGradients final : StageFilter {
  using StageFilter::StageFilter;
  Status begin(const IterationPlan& plan, const data::DecodedSamples& samples) override {
    has_told = false;
    return StageFilter::begin(plan, samples);
  }
  std::vector<PartLoss> losses() const override {
    has_told = true;
    return StageFilter::losses();
  }
  GroupState& state(GroupId group, LayerId layer) override {
    if (has_told) throw std::runtime_error("not yours");
    return StageFilter::state(group, layer);
  }
  mutable bool has_told = false;
};

struct NeverBegins final : StageFilter {
  using StageFilter::StageFilter;
  Status begin(const IterationPlan&, const data::DecodedSamples&) override { for (;;) std::this_thread::sleep_for(std::chrono::hours(1)); }
};

// A state of one's own around the engine's: says whether a step of the optimizer has changed what it holds.
struct NotingState final : GroupState {
  explicit NotingState(GroupState& of) : inner(of) {}
  const std::vector<models::Parameter*>& parameters() const override { return inner.parameters(); }
  at::Tensor& gradients() override { return inner.gradients(); }
  const std::vector<IndexRange>& own_updates() const override { return inner.own_updates(); }
  void copy_gradients(std::map<std::string, at::Tensor>& target) const override { inner.copy_gradients(target); }
  Bytes optimizer_bytes() const override { return inner.optimizer_bytes(); }
  Bytes fetch_state(Device& device) override { return inner.fetch_state(device); }
  Bytes offload_state(Device& device) override { return inner.offload_state(device); }
  bool has_fetched_state() const override { return inner.has_fetched_state(); }
  void forget_fetched_state() override { inner.forget_fetched_state(); }
  void update(const state::AdamWOptions& options, std::int64_t step, double learning_rate, double clip) override {
    const auto before = of_values();
    inner.update(options, step, learning_rate, clip);
    std::ofstream(std::getenv("OWN_LIST"), std::ios::app) << (of_values() == before ? "still" : "moved") << "\n";
  }
  std::uint64_t hash() const override { return inner.hash(); }
  std::uint64_t of_values() const {
    std::uint64_t hash = state::kHashSeed;
    for (const models::Parameter* parameter : inner.parameters()) hash = state::hash_tensor(parameter->value, hash);
    return hash;
  }
  GroupState& inner;
};

struct Notes final : StageFilter {
  using StageFilter::StageFilter;
  GroupState& state(GroupId group, LayerId layer) override {
    auto& own = states[{group, layer}];
    if (!own) own = std::make_unique<NotingState>(StageFilter::state(group, layer));
    return *own;
  }
  std::map<std::pair<GroupId, LayerId>, std::unique_ptr<NotingState>> states;
};

// Takes an operator that has no fixed order, as far as LibTorch knows.
struct Orderless final : StageFilter {
  using StageFilter::StageFilter;
  Status forward(PartKey part) override {
    at::Context::alertNotDeterministic("put_");
    return StageFilter::forward(part);
  }
};

// Fails with the step's first sample, which one node has: in each process, or in the first one alone, by itself or by its device.
// Or in step 2, as long as there is no list: by the end of its process, or for want of memory.
enum class Way { throws_once, crashes, hangs_once, hangs, crashes_later, lacks_memory };
struct Fails final : StageFilter {
  Fails(std::unique_ptr<StageProgram> inner, Way way, const StageRequest& request)
      : StageFilter(std::move(inner)), way(way), layout(request.plan), id(request.id) {}
  Status begin(const IterationPlan& plan, const data::DecodedSamples& samples) override {
    iteration = &plan;
    return StageFilter::begin(plan, samples);
  }
  Status forward(PartKey part) override {
    const auto& own = samples_of(layout, *iteration, id, part.microbatch, part.part);
    // Numbers of samples are this node's own, and units may be pieces of them; steps of this job have eight.
    const auto is_first = [&](std::int32_t unit) { return iteration->sample(unit).position % 8 == 0; };
    if (std::none_of(own.begin(), own.end(), is_first)) return StageFilter::forward(part);
    if (way == Way::crashes) std::abort();
    if (way == Way::crashes_later || way == Way::lacks_memory) {
      if (iteration->step != 2 || std::ifstream(std::getenv("OWN_LIST"))) return StageFilter::forward(part);
      if (way == Way::crashes_later) std::abort();
      throw std::bad_alloc();
    }
    if (way == Way::hangs) for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    if (std::FILE* made = std::fopen(std::getenv("OWN_LIST"), "wx")) {
      std::fclose(made);
      if (way == Way::hangs_once) for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
      if (std::getenv("OWN_STAGE") == std::string("device-once"))
        throw c10::AcceleratorError({"launch", "kernel.cu", 1}, 214, "CUDA error: uncorrectable ECC error encountered");
      throw std::runtime_error("too tired");
    }
    return StageFilter::forward(part);
  }
  const Way way;
  const ParallelPlan& layout;
  const StageId id;
  const IterationPlan* iteration = nullptr;
};

// What is planted around the built-in stage.
struct Faulty final : StageFilter {
  Faulty(std::unique_ptr<StageProgram> inner, std::string fault, const StageRequest& request)
      : StageFilter(std::move(inner)), fault(std::move(fault)), plan(request.plan), id(request.id) {}
  Status begin(const IterationPlan& iteration, const data::DecodedSamples& samples) override {
    parts.clear();
    others = false;
    for (std::size_t s = 0; s < iteration.samples.size(); ++s) others |= iteration.samples[s].position != static_cast<std::int64_t>(s);
    return StageFilter::begin(iteration, samples);
  }
  Status forward(PartKey part) override {
    if (fault == "endless") for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    if (fault == "leak") kept.push_back(at::ones({1000}));
    if (fault == "throws-backward" || fault == "forgets") ++forwards;
    ++parts[part.microbatch];
    return StageFilter::forward(part);
  }
  Status backward(PartKey part) override {
    if (fault == "throws-backward" && part.microbatch.value == 1) throw std::runtime_error("too tired");
    auto done = StageFilter::backward(part);
    for (std::size_t g = 0; g < plan.groups.size(); ++g)
      for (const ParameterUse& use : plan.groups[g].uses) {
        if (use.stage != id) continue;
        auto& gradient = state(GroupId{g}, use.layer).gradients();
        if (fault == "wrong-gradient") gradient.mul_(1.001);
        if (fault == "random") gradient.add_(at::rand_like(gradient), 1e-12);
        if (fault == "forgets" && forwards > 2) gradient.mul_(1 + 1e-10);  // Of rounds behind the first.
        if (fault == "by-microbatch" && parts[part.microbatch] > 1) gradient.mul_(1.001);
        if (fault == "by-order" && part.microbatch.value == 0) gradient.mul_(1.5);
      }
    return done;
  }
  Status backward_weight(PartKey part) override {
    return fault == "no-weights" ? Status(Done{}) : StageFilter::backward_weight(part);
  }
  Result<at::Tensor> rows_for(MessageId message) override {
    auto rows = StageFilter::rows_for(message);
    if (fault == "doubles" && rows.ok()) return rows.value().mul(2);
    if (fault == "by-number" && others && rows.ok()) return rows.value().mul(1.001);
    if (fault == "short-rows" && rows.ok()) return rows.value().narrow(0, 1, rows.value().size(0) - 1);
    return rows;
  }
  void accept_gradient(MessageId message, at::Tensor gradient) override {
    StageFilter::accept_gradient(message, fault == "doubles" ? gradient.mul(2) : gradient);
  }
  Result<Bytes> offload(PartKey part, Device& device) override {
    auto moved = StageFilter::offload(part, device);
    return fault == "no-offload" && moved.ok() ? moved.value() + Bytes{1} : moved;
  }
  Result<Bytes> fetch(PartKey part, Device& device) override {
    return fault == "no-fetch" ? Bytes{} : StageFilter::fetch(part, device);
  }
  void abandon() override {
    if (fault == "throws-abandon") throw std::runtime_error("too tired");
    if (fault != "holds-on") StageFilter::abandon();
  }
  std::vector<PartLoss> losses() const override {
    if (fault == "throws-losses") throw std::runtime_error("too tired");
    return StageFilter::losses();
  }
  const std::string fault;
  const ParallelPlan& plan;
  const StageId id;
  std::vector<at::Tensor> kept;
  std::map<MicrobatchId, int> parts;
  bool others = false;  // Numbers of samples are not their positions.
  int forwards = 0;
};

Made faulty(const StageRequest& request) {
  auto inner = built_in_stage(request);
  if (!inner.ok()) return inner;
  return std::unique_ptr<StageProgram>(std::make_unique<Faulty>(std::move(inner).value(), std::getenv("OWN_FAULT"), request));
}

Made plain(const StageRequest& request) {
  std::ofstream(std::getenv("OWN_LIST"), std::ios::app) << request.id.index() << "\n";
  return built_in_stage(request);
}

template <class Own>
Made around(const StageRequest& request) {
  auto inner = built_in_stage(request);
  if (!inner.ok()) return inner;
  return std::unique_ptr<StageProgram>(std::make_unique<Own>(std::move(inner).value()));
}

template <Way kWay>
Made failing(const StageRequest& request) {
  auto inner = built_in_stage(request);
  if (!inner.ok()) return inner;
  return std::unique_ptr<StageProgram>(std::make_unique<Fails>(std::move(inner).value(), kWay, request));
}

Status register_all() {
  const std::string which = std::getenv("OWN_STAGE") ? std::getenv("OWN_STAGE") : "";
  if (which == "llms") return register_stage({"llms", {"llama"}, plain});
  if (which == "throws-once" || which == "device-once") return register_stage({which, {"llama"}, failing<Way::throws_once>});
  if (which == "crashes-later") return register_stage({which, {"llama"}, failing<Way::crashes_later>});
  if (which == "lacks-memory") return register_stage({which, {"llama"}, failing<Way::lacks_memory>});
  if (which == "crashes") return register_stage({"crashes", {"llama"}, failing<Way::crashes>});
  if (which == "hangs-once") return register_stage({"hangs-once", {"llama"}, failing<Way::hangs_once>});
  if (which == "never-begins") return register_stage({which, {"llama"}, around<NeverBegins>});
  if (which == "hangs") return register_stage({"hangs", {"llama"}, failing<Way::hangs>});
  if (which == "throws") return register_stage({"throws", {"llama"}, around<Throws>});
  if (which == "keeps-model") return register_stage({which, {"llama"}, around<KeepsModel>});
  if (which == "keeps-gradients") return register_stage({which, {"llama"}, around<KeepsGradients>});
  if (which == "notes") return register_stage({which, {"qwen2-vl", "llama"}, around<Notes>, true});
  if (which == "orderless") return register_stage({which, {"llama"}, around<Orderless>});
  if (which == "cannot") return register_stage({"cannot", {}, [](const StageRequest&) -> Made { throw std::runtime_error("no room"); }});
  if (which == "misspelt") return register_stage({"misspelt", {"lama"}, plain});
  if (which == "negative" || which == "no-number" || which == "thrown-costs" || which == "lends") {
    StageKind kind{which, {"qwen2-vl"}, plain};
    if (which == "lends") kind.holds = [](const LayerSpec&, const ModuleConfig&) { return Bytes{-3}; };
    if (which != "lends") kind.costs = [which](const LayerCosts& own, const CostedRows&) -> LayerCosts {
      if (which == "thrown-costs") throw std::runtime_error("no idea");
      return {own.forward_ms, own.input_gradient_ms, own.weight_gradient_ms, which == "negative" ? -1 : std::nan("")};
    };
    return register_stage(kind);
  }
  if (which == "never-made") return register_stage({which, {"llama"}, [](const StageRequest&) -> Made { for (;;) std::this_thread::sleep_for(std::chrono::hours(1)); }});
  if (which == "none") return register_stage({"none", {}, [](const StageRequest&) -> Made { return std::unique_ptr<StageProgram>(); }});
  if (which == "faulty") return register_stage({"faulty", {"qwen2-vl", "llama"}, faulty, true});
  if (which == "My Stage") return register_stage({which, {}, plain});
  if (which == "makes-nothing") return register_stage({which, {}, {}});
  if (auto first = register_stage({"seers", {"qwen2-vl", "whisper"}, plain}); !first.ok()) return first;
  if (which == "seers") return Done{};
  if (which == "both") return register_stage({"readers", {"mlp"}, plain});
  return register_stage({"greedy", {}, plain});
}

TROUPE_PLUGIN(register_all)
"""


PROMISES = ["rows", "same bits", "gradients", "split backward", "order of parts", "built-in", "packing", "parts", "pieces", "slice", "abandon", "offload", "shown", "memory", "frozen", "gradient copies", "hash", "moments", "moved", "cut"]


class StageBench(Bench):
    example, library_name = EXAMPLE, "sentry.so"

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.own = self.built_beside(OWN)

    def own_job(self, name, which, *words):
        """What a training with one of the kinds above prints and its exit code."""
        done = subprocess.run([*self.job(name, "train.steps=3", f'plugins.libraries=["{self.own}"]', *words)], capture_output=True,
                              text=True, timeout=120, env={**os.environ, "OWN_STAGE": which, "OWN_LIST": str(self.folder / "list")})
        return done.returncode, done.stdout + done.stderr

    def invalid(self, which, *words, command="validate"):
        os.environ["OWN_STAGE"] = which
        try:
            return self.said(command, *self.words(self.own), *words)
        finally:
            del os.environ["OWN_STAGE"]

    def told(self, which, command, *words):
        """What a command that ends well prints of the job with one of the kinds above."""
        return ran([self.binary, command, *self.words(self.own), *words], env={**os.environ, "OWN_STAGE": which, "OWN_LIST": str(self.folder / "list")})


def the_example_survives_a_killed_node_and_a_restart_and_equals_its_reference(bench):
    bench.survives("sentry")


def the_example_keeps_what_stages_promise(bench):
    bench.keeps_its_promises()


def the_example_names_what_is_no_number(bench):
    done = subprocess.run(bench.job("wild", "train.dtype=fp32", "optimizer.lr=1000", "optimizer.weight_decay=1000", "optimizer.warmup_steps=0"),
                          capture_output=True, text=True, timeout=120)
    expect(done.returncode == 1, f"exit {done.returncode}\n{done.stderr[-1500:]}")
    # Step, device and stage the engine knows.
    expect(re.search(r"not finite: (the gradient of )?rows of (vision|audio)\w*, samples \S.*, in step \d on device \d, send(_gradient)? of stage \d \(.* of microbatch \d",
                     done.stderr), done.stderr[-1500:])


def a_kind_gets_the_stages_of_its_families_alone(bench):
    (bench.folder / "list").unlink(missing_ok=True)
    code, said = bench.own_job("llms", "llms")
    expect(code == 0, said[-1500:])
    expect((bench.folder / "list").read_text().split() == ["1"], "the llm's stage is the second one")
    ran(bench.job("plain", "train.steps=3", "plugins.libraries=[]"))
    files = [bench.folder / name / "model" / "model.safetensors" for name in ("llms", "plain")]
    expect(filecmp.cmp(*files, shallow=False), "it changed what was trained")


def a_state_of_ones_own_stands_around_the_engines(bench):
    """Written from installed headers alone: it sees each step of the optimizer, changes no bit, and keeps what is promised of states."""
    moved = bench.folder / "list"
    moved.unlink(missing_ok=True)
    code, said = bench.own_job("notes", "notes", "debug.parameter_hashes=true")
    expect(code == 0, said[-1500:])
    expect("moved" in moved.read_text().split(), f"no step of the optimizer is seen to move anything: {moved.read_text()}")
    ran(bench.job("without-notes", "train.steps=3", "plugins.libraries=[]"))
    files = [bench.folder / name / "model" / "model.safetensors" for name in ("notes", "without-notes")]
    expect(filecmp.cmp(*files, shallow=False), "it changed what was trained")
    stage, = json.loads(bench.told("notes", "check", "--module", "vision", "--json"))["stages"]
    expect({"gradient copies", "hash", "moments", "moved"} <= set(stage["kept"]) and not stage["breaches"], f"{stage}")


def faulty_kinds_are_named(bench):
    for which, words in {"throws": ["of its own accord, in step 1 on device 1, backward", " of stage 1 (llm layers 0 to 3) for samples '"], "cannot": ["stage kind 'cannot' throws: no room, as layout 1 comes up on device ", ", `make` of stage "],
                         "none": ["stage kind 'none' makes no stage"]}.items():
        code, said = bench.own_job(which, which)
        expect(code == 1 and all(word in said for word in words), f"{which}: exit {code}\n{said[-1500:]}")


def what_is_thrown_where_a_stage_gives_the_model_or_gradients_is_named(bench):
    for which, named in (("keeps-model", "not yours, behind step 3 on device 1, `parameters` of stage 1 (llm layers 0 to 3)"),
                         ("keeps-gradients", "not yours, in step 1 on device 1, `copy_gradients` of stage 1 (llm layers 0 to 3)")):
        code, said = bench.own_job(which, which, "train.dump_gradients=true")
        expect(code == 1 and named in said, f"{which}: exit {code}\n{said[-1500:]}")


def an_operator_without_a_fixed_order_ends_the_job_unless_it_may(bench):
    """On accelerators; of a CPU's operators nothing is asked."""
    apart = bench.build / "tests" / "apart.so"
    place = [f'plugins.libraries=["{apart}","{bench.own}"]', "cluster.device=apart"]
    for allowed in ("true", "false"):  # A profile of any operators is another one.
        ran([bench.binary, "profile", *bench.words(), *place, f"job.run_dir={bench.folder / 'any'}", f"train.deterministic={allowed}", "--budget", "2"],
            env={**os.environ, "OWN_STAGE": "orderless"})
    code, said = bench.own_job("orderless", "orderless", *place)
    expect(code == 1 and all(word in said for word in ("LibTorch: operator 'put_' has no fixed order on its device, in step 1", "forward of stage 1 (llm layers 0 to 3)",
                                                       "train.deterministic = false")), f"exit {code}\n{said[-1500:]}")
    code, said = bench.own_job("orderless-free", "orderless", *place, "train.deterministic=false")
    expect(code == 0, f"exit {code}\n{said[-1500:]}")
    expect("because any operators: " in (bench.folder / "orderless-free" / "train.log").read_text(), "the log does not say that bits may differ")
    code, said = bench.own_job("orderless-host", "orderless")
    expect(code == 0, f"exit {code}\n{said[-1500:]}")


# Window: a stage throws
def a_stage_that_fails_once_costs_a_node_and_no_more(bench):
    (bench.folder / "list").unlink(missing_ok=True)
    code, said = bench.own_job("once", "throws-once", *bench.replicas, "cluster.fault_tolerance=1")
    expect(code == 0, f"exit {code}\n{said[-1500:]}")
    lost = [line["why"] for line in read_lines(bench.folder / "once" / "events.jsonl") if line["kind"] == "lost"]
    expect(len(lost) == 1 and "too tired, in step 1" in lost[0] and "for samples '" in lost[0], f"losses: {lost}")
    ran(bench.job("once-reference", "train.steps=3", "--reference"))
    bench.equal("once-reference", "once")


def a_device_that_fails_is_a_lost_node(bench):
    (bench.folder / "list").unlink(missing_ok=True)
    code, said = bench.own_job("device", "device-once", *bench.replicas, "cluster.fault_tolerance=1")
    expect(code == 0, f"exit {code}\n{said[-1500:]}")
    lost = [line["why"] for line in read_lines(bench.folder / "device" / "events.jsonl") if line["kind"] == "lost"]
    expect(len(lost) == 1 and "was lost: CUDA error: uncorrectable ECC error encountered, in step 1" in lost[0], f"losses: {lost}")


def a_stage_that_fails_again_ends_the_job_and_says_why(bench):
    for which, words in {"throws": ["step 1 fails again where it is trained again", "of its own accord, in step 1", "before that node"],
                         "crashes": ["both ended in step 1 for samples '", "was killed by signal 6"]}.items():
        code, said = bench.own_job(f"again-{which}", which, *bench.replicas, "cluster.fault_tolerance=1")
        expect(code == 1 and all(word in said for word in words), f"{which}: exit {code}\n{said[-1500:]}")


# Window: an error that would come again
# Window: what runs in a step ends its process
def a_step_that_fails_again_ends_the_job_with_what_came_before_it(bench):
    """And it goes on from there once that is mended."""
    ran(bench.job("later-reference", "train.steps=3", "--reference"))
    # Encoders' parameters are in host memory when their devices wait for the one that has failed.
    away = ("scheduler.schedule=three-phase", "scheduler.offload_encoders=all")
    for name, which, more, says in (("crashes-later", "crashes-later", (), "both ended in step 2 for samples '"),
                                    ("lacks-memory", "lacks-memory", (), "out of memory, in step 2 on device "),
                                    ("lacks-memory-away", "lacks-memory", away, "out of memory, in step 2 on device ")):
        (bench.folder / "list").unlink(missing_ok=True)
        words = (*bench.replicas, "cluster.fault_tolerance=1", *more)
        code, said = bench.own_job(name, which, *words)
        expect(code == 1 and says in said, f"{name}: exit {code}\n{said[-1500:]}")
        expect("step 1 is saved: the same command with --resume goes on from there (" in said, f"{name}: step 1 is lost\n{said[-1500:]}")
        (bench.folder / "list").touch()
        code, said = bench.own_job(name, which, *words, "--resume")
        expect(code == 0 and "going on after step 1" in said, f"{name}: exit {code}\n{said[-1500:]}")
        bench.equal("later-reference", name)


def a_stage_that_never_returns_costs_a_node_once_and_then_the_job(bench):
    (bench.folder / "list").unlink(missing_ok=True)
    words = (*bench.replicas, "cluster.fault_tolerance=1", "train.stall_timeout_s=6")
    named = "the work does not return, in step 1 on device "
    code, said = bench.own_job("hangs-once", "hangs-once", *words)
    expect(code == 0, f"exit {code}\n{said[-1500:]}")
    lost = [line["why"] for line in read_lines(bench.folder / "hangs-once" / "events.jsonl") if line["kind"] == "lost"]
    expect(len(lost) == 1 and all(word in lost[0] for word in (named, "forward of stage ", "(llm layers 0 to ", " for samples '", " of microbatch ")),
           f"losses: {lost}")
    ran(bench.job("hangs-once-reference", "train.steps=3", "--reference"))
    bench.equal("hangs-once-reference", "hangs-once")
    code, said = bench.own_job("hangs", "hangs", *words)
    expect(code == 1 and "step 1 fails again where it is trained again" in said and said.count(named) >= 2, f"exit {code}\n{said[-1500:]}")


def a_stage_that_never_returns_from_its_begin_is_named(bench):
    code, said = bench.own_job("never-begins", "never-begins", "train.stall_timeout_s=6")
    expect(code == 1 and "the work does not return, in step 1 on device 1, `begin` of stage 1 (llm layers 0 to 3) (" in said and " s so far)" in said,
           f"exit {code}\n{said[-1500:]}")


# Window: a layout does not come up
def a_stage_that_is_made_without_end_is_named(bench):
    code, said = bench.own_job("never-made", "never-made", "cluster.join_timeout_s=15")
    named = "the work does not return, as layout 1 comes up on device 1, `make` of stage 1 (llm layers 0 to 3) by stage kind 'never-made' ("
    expect(code == 1 and "was not set up within 15 s" in said and named in said and "raise cluster.join_timeout_s" in said, f"exit {code}\n{said[-1500:]}")


def what_cannot_be_is_found_before_a_job_begins(bench):
    said = bench.invalid("both")
    expect("layers of two stage kinds, 'seers' and 'readers'" in said and "cut the layout" in said, said)
    said = bench.invalid("greedy")
    expect("'greedy' wants qwen2-vl, which 'seers' has already" in said, said)
    expect("'My Stage' has no proper name" in bench.invalid("My Stage"), "a bad name")
    away = 'scheduler.schedule="three-phase"', 'scheduler.offload_encoders="activations"'
    said = bench.invalid("seers", *away)
    expect("stage kind 'seers' keeps what a forward leaves on the device" in said and "set `offloads` of the kind" in said, said)
    expect("'makes-nothing' has no `make`" in bench.invalid("makes-nothing"), "a kind without `make`")


def what_cannot_be_is_said_by_whoever_plans_or_trains(bench):
    """In the words of `validate`, and before anything of a run is there. A check has each module by itself."""
    for which, commands, *words in (
            ("misspelt", ("validate", "plan", "train", "check"), "stage kind 'misspelt' is for family 'lama', which is not there", "did you mean `llama`?"),
            ("both", ("validate", "plan", "train"), "layers of two stage kinds, 'seers' and 'readers'", "fix: cut the layout between their modules")):
        for command in commands:
            said = bench.invalid(which, f"job.run_dir={bench.folder / which}", command=command)
            expect(all(word in said for word in words), f"{command}: {said}")
        expect(not (bench.folder / which / "train.log").exists(), f"{which}: a run was begun")


def a_layout_by_hand_with_a_stage_of_two_kinds_is_refused_at_once(bench):
    """Not by the nodes that were to build it: the job trains on."""
    run, layout = bench.folder / "apart", bench.folder / "one-stage.toml"
    cut = ('parallel.pipelines=[{stages=[{node=0,vision="all",audio="all"},'
           '{node=1,vision_projector="all",audio_projector="all"},{node=1,llm="all"}]}]')
    layout.write_text('[[parallel.pipelines]]\nstages = [{node = 0, vision = "all", audio = "all", llm = "all"}]\n')
    with mock.patch.dict(os.environ, OWN_STAGE="both", OWN_LIST=str(bench.folder / "list")):
        with Running(bench.job("apart", f'plugins.libraries=["{bench.own}"]', cut, "train.steps=5000"), run) as job:
            job.wait_for(2)
            said = bench.said("ctl", run, "layout", layout)
            expect("layers of two stage kinds, 'seers' and 'readers'" in said and "fix: cut the layout between their modules" in said, said)
            job.wait_for(read_lines_so_far(run / "metrics.jsonl")[-1]["step"] + 3)
            job.stop()
    expect(not any(line["kind"] in ("layout", "lost") for line in read_lines_so_far(run / "events.jsonl")), "it has changed something")


def an_open_layout_has_no_stage_of_two_kinds(bench):
    """A single node has a stage of each, and so has one of those that a loss may leave alone."""
    kinds = {"vision": "seers", "audio": "seers", "vision_projector": "readers", "audio_projector": "readers", "llm": ""}
    for words in (["cluster.local_nodes=1"], ["cluster.local_nodes=4", "cluster.fault_tolerance=1"]):
        words += ["parallel.pipelines=[]", "parallel.mode=auto"]
        bench.told("both", "validate", *words)
        stages = json.loads(bench.told("both", "plan", "--json", *words))["stages"]
        expect(all({kinds[run["module"]] for run in stage["runs"]} == {stage["stage_kind"]} for stage in stages), f"{words}: {stages}")
        expect({stage["stage_kind"] for stage in stages} == {"seers", "readers", ""}, f"{words}: {stages}")


def stages_of_two_kinds_train_on_one_device(bench):
    code, said = bench.own_job("one-device", "both", "cluster.local_nodes=1", "parallel.pipelines=[]", "parallel.mode=auto")
    expect(code == 0, f"exit {code}\n{said[-1500:]}")
    log = (bench.folder / "one-device" / "train.log").read_text()
    expect("stage kind 'seers' runs 2 of 5 stages" in log and "stage kind 'readers' runs 2 of 5 stages" in log, log[-1500:])
    ran(bench.job("one-device-reference", "train.steps=3", "--reference"))
    bench.equal("one-device-reference", "one-device")


def who_runs_the_stages_is_told(bench):
    line = "stage kind 'llms' runs 1 of 2 stages: llm 0-3"
    for command in ("validate", "plan"):
        said = bench.told("llms", command)
        expect(line in said and line not in ran([bench.binary, command, *bench.words(bench.own)], env={**os.environ, "OWN_STAGE": "seers"}), f"{command}: {said}")
    stages = json.loads(bench.told("llms", "plan", "--json"))["stages"]
    expect([stage["stage_kind"] for stage in stages] == ["", "llms"], f"{stages}")
    stages = json.loads(bench.told("llms", "check", "--module", "llm", "--json"))["stages"]
    expect([stage["stage_kind"] for stage in stages] == ["llms"], f"{stages}")
    code, said = bench.own_job("told", "llms", "train.steps=1")
    expect(code == 0 and line in (bench.folder / "told" / "train.log").read_text(), f"exit {code}\n{said[-1500:]}")


def costs_that_no_plan_can_be_made_of_are_named(bench):
    """By a training too, before anything of a run is there."""
    bad = "; times and bytes are finite and not below zero"
    for which, *words in (("negative", "`costs` of stage kind 'negative' says kept_bytes = -1.000000 of vision.", bad),
                          ("no-number", "`costs` of stage kind 'no-number' says kept_bytes = ", bad),
                          ("thrown-costs", "`costs` of stage kind 'thrown-costs' throws: no idea"),
                          ("lends", "`holds` of stage kind 'lends' says -3 bytes of layer 'vision.")):
        for command in ("plan", "train"):
            said = bench.invalid(which, f"job.run_dir={bench.folder / which}", command=command)
            expect(all(word in said for word in words) and "fix: correct the plug-in" in said and "defect" not in said, f"{command}, {which}: {said}")
        expect(not (bench.folder / which / "train.log").exists(), f"{which}: a run was begun")
    # A check asks on a thread of its own, and ends in order all the same.
    said = bench.invalid("lends", command="check")
    expect("`holds` of stage kind 'lends' says -3 bytes of layer 'vision." in said and "fix: correct the plug-in" in said, said)


def checked(bench, fault, module, *words, code=1):
    """What `troupe check` says of a module's stage with this fault: its JSON, or what stands on stderr."""
    done = subprocess.run([str(word) for word in (bench.binary, "check", *bench.words(bench.own), "--module", module, "--json", *words)],
                          capture_output=True, text=True, timeout=120,
                          env={**os.environ, "OWN_STAGE": "faulty", "OWN_FAULT": fault, "OMP_NUM_THREADS": "1"})
    expect(done.returncode == code, f"{fault}: exit {done.returncode} instead of {code}\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
    return json.loads(done.stdout)["stages"] if done.stdout else done.stderr


def a_check_names_the_promise_that_is_broken(bench):
    for module in ("vision", "audio", "llm"):
        stage, = checked(bench, "none", module, code=0)
        # Positions of the audio encoder are constants; of the others everything trains, by the kind. No plan puts away what the llm keeps.
        absent = {"vision": {"frozen"}, "audio": {"built-in"}, "llm": {"frozen", "offload", "moments"}}[module]
        asked = [promise for promise in PROMISES if promise not in absent]
        expect(stage["kept"] == asked and not stage["breaches"], f"{module}: {stage}")
    for fault, module, broken, found in (
            ("leak", "llm", "memory", "bytes for good; its layers, run by the engine's own stage, keep none"), ("wrong-gradient", "llm", "gradients", "along a direction"),
            ("wrong-gradient", "vision", "gradients", "of vision."), ("random", "llm", "same bits", "differs by"),
            ("forgets", "vision", "same bits", "a second round differs"), ("by-order", "llm", "order of parts", "differs by"),
            ("no-weights", "llm", "split backward", "differs by"), ("short-rows", "vision", "rows", "instead of"),
            ("doubles", "vision", "built-in", "what stage kind 'faulty' gives"), ("by-microbatch", "vision", "parts", "differs by"),
            ("by-number", "vision", "slice", "what its node's slice of a plan gives, beside all of it, differs by"), ("holds-on", "llm", "abandon", "bytes count as held"),
            ("no-fetch", "vision", "offload", "bytes come back of"), ("no-offload", "vision", "offload", "`activations` goes from"),
            ("throws-losses", "llm", "rows", "losses: throws: too tired"), ("throws-abandon", "llm", "abandon", "abandon: throws: too tired"),
            ("throws-backward", "llm", "rows", "backward of microbatch 1: throws: too tired")):
        stage, = checked(bench, fault, module)
        said = [breach["found"] for breach in stage["breaches"] if breach["promise"] == broken]
        expect(any(found in words for words in said) and broken not in stage["kept"], f"{fault} of {module}: {stage}")
    said = checked(bench, "endless", "llm", "--timeout", "2")
    expect("llm 0-3: rows: no answer within 2 s" in said and "--timeout" in said, said)
    said = bench.said("check", *bench.words(), "--module", "visoin")
    expect("no module 'visoin'" in said, said)


def a_node_without_the_plugin_is_refused(bench):
    """It would run the built-in stage, and nobody would know."""
    with bench.waiting_for_nodes("without") as (job, join):
        said = join().communicate(timeout=90)[1]
        expect(job.process.wait(90) == 2, f"exit {job.process.returncode} instead of 2\n{said}")
    expect("has no stage kind 'sentry', by which the job's stages run" in said, said)


def a_new_stage_passes_its_own_test_under_its_own_name(bench):
    folder = bench.folder / "mine"
    said = ran([bench.binary, "new", "stage", "mine", "--dir", folder])
    expect("a stage of your own" in said and f"Next:  {folder}/test.sh {bench.prefix}" in said, said)
    expect(not any("sentry" in path.read_text() for path in folder.iterdir()), "the example's name is left in it")
    (folder / "data").symlink_to(bench.folder / "data")
    expect("not finite: " in ran([folder / "test.sh", bench.prefix]), "it does not show what it says")


CASES = [the_example_survives_a_killed_node_and_a_restart_and_equals_its_reference, the_example_keeps_what_stages_promise,
         the_example_names_what_is_no_number, a_kind_gets_the_stages_of_its_families_alone, a_state_of_ones_own_stands_around_the_engines, faulty_kinds_are_named,
         what_is_thrown_where_a_stage_gives_the_model_or_gradients_is_named, an_operator_without_a_fixed_order_ends_the_job_unless_it_may,
         a_stage_that_fails_once_costs_a_node_and_no_more, a_device_that_fails_is_a_lost_node,
         a_stage_that_fails_again_ends_the_job_and_says_why, a_step_that_fails_again_ends_the_job_with_what_came_before_it,
         a_stage_that_never_returns_costs_a_node_once_and_then_the_job, a_stage_that_never_returns_from_its_begin_is_named,
         a_stage_that_is_made_without_end_is_named, what_cannot_be_is_found_before_a_job_begins,
         what_cannot_be_is_said_by_whoever_plans_or_trains, a_layout_by_hand_with_a_stage_of_two_kinds_is_refused_at_once,
         an_open_layout_has_no_stage_of_two_kinds, stages_of_two_kinds_train_on_one_device, who_runs_the_stages_is_told,
         costs_that_no_plan_can_be_made_of_are_named,
         a_check_names_the_promise_that_is_broken, a_node_without_the_plugin_is_refused,
         a_new_stage_passes_its_own_test_under_its_own_name]

if __name__ == "__main__":
    sys.exit(main(StageBench, CASES, *sys.argv[1:]))
