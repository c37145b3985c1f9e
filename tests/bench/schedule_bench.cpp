// Times of planning: schedules, iteration plans, their simulation, layout search.
//
//   schedule_bench [quick]      # quick: without 10,000 devices

#include <functional>
#include <iostream>
#include <map>
#include <string>

#include "runtime/vocabulary/random.hpp"
#include "scheduler/check/check_plan.hpp"
#include "scheduler/cost/stage_times.hpp"
#include "scheduler/iteration/plan_iteration.hpp"
#include "scheduler/iteration/schedules.hpp"
#include "scheduler/layout/layout.hpp"
#include "scheduler/layout/place_by_hand.hpp"
#include "scheduler/simulate/simulate_plan.hpp"
#include "tests/bench/report.hpp"

namespace {

using namespace troupe;
using namespace troupe::scheduler;

/// Times `work` and reports it. `bound`: what the project asks for, 0 if nothing.
void measure(const std::string& name, const std::string& size, double bound, int repeats,
             const std::string& note, const std::function<void()>& work) {
  nlohmann::json extra{{"size", size}, {"better", "lower"}, {"note", note}};
  if (bound > 0) extra["bound"] = bound;
  bench::report(name, 1e3 * bench::median_seconds(repeats, work), "ms", extra);
}

/// Encoder of one stage in eight, an llm of the rest, side by side in `devices / 8` pipelines.
struct Cluster {
  ParallelPlan plan;
  IterationInput input;
};

Cluster make_cluster(int devices, int microbatches) {
  constexpr int kDepth = 8;
  const auto layers = [](const std::string& name, int count) {
    std::vector<LayerSpec> list;
    for (int i = 0; i < count; ++i) list.push_back({name + std::to_string(i), 1'000'000});
    return list;
  };
  ModelGraph model;
  model.modules = {
      {"vision", ModuleKind::encoder, false, {ModuleId{1}}, layers("v", 8), 1024, 2048},
      {"llm", ModuleKind::llm, false, {}, layers("l", kDepth - 1), 2048, 2048}};
  HandLayout layout;
  const int pipelines = devices / kDepth;
  for (int p = 0; p < pipelines; ++p) {
    std::vector<HandStage> stages;
    for (int s = 0; s < kDepth; ++s)
      stages.push_back(
          {p, s, {{s == 0 ? "vision" : "llm", s == 0 ? LayerRange{0, 8} : LayerRange{s - 1, s}}}});
    layout.pipelines.push_back(std::move(stages));
  }
  Cluster cluster{place_by_hand(model, layout, {pipelines, kDepth}).value(), {}};
  Random random(1);
  const int samples = pipelines * microbatches;
  for (int s = 0; s < samples; ++s) {
    SampleShape shape;
    shape.position = s;
    const auto rows = static_cast<std::int32_t>(64 + random.below(512));
    shape.media.push_back({ModuleId{0}, {{4 * rows, 4 * rows, rows, 2, 2 * rows}}});
    shape.llm_tokens = rows + 128;
    shape.trained_tokens = 64;
    cluster.input.samples.push_back(std::move(shape));
  }
  cluster.input.microbatches = assign_by_count(cluster.plan, samples, microbatches);
  return cluster;
}

void bench_plan(int devices, int microbatches) {
  const std::string size =
      std::to_string(devices) + " devices x " + std::to_string(microbatches) + " microbatches";
  const auto cluster = make_cluster(devices, microbatches);
  const int repeats = devices > 1'000 ? 1 : 3;
  IterationPlan iteration;
  measure("plan an iteration", size, 0, repeats, "1f1b",
          [&] { iteration = plan_iteration(cluster.plan, cluster.input).value(); });
  SimulationCosts costs;
  costs.task_ms = [](StageId, const std::vector<std::int32_t>&, TaskKind kind) {
    return kind == TaskKind::forward ? 10.0 : 20.0;
  };
  costs.activation_bytes = [](StageId, const auto&) { return 1e6; };
  costs.node = {0.01, 200};
  costs.network = {0.02, 25};
  measure("simulate an iteration", size, devices >= 10'000 ? 10'000 : 0, repeats, "all links",
          [&] { (void)simulate(cluster.plan, iteration, costs).value(); });
  if (devices <= 100)
    measure("check an iteration", size, 0, repeats, "every fault",
            [&] { (void)check(cluster.plan, iteration); });
}

void bench_schedules(int stages, int microbatches) {
  PipelineTimes times;
  times.microbatches = microbatches;
  Random random(1);
  for (int s = 0; s < stages; ++s) {
    StageTimes stage;
    stage.name = "llm." + std::to_string(s);
    stage.device = s;
    if (s + 1 < stages) stage.next = {s + 1};
    for (int m = 0; m < microbatches; ++m) {
      stage.forward_ms.push_back(1 + random.uniform());
      stage.input_grad_ms.push_back(1 + random.uniform());
      stage.weight_grad_ms.push_back(1 + random.uniform());
    }
    times.stages.push_back(std::move(stage));
  }
  for (const auto& schedule : schedule_names()) {
    const auto graph = task_graph(times, splits_weight_gradient(schedule));
    const double step_ms = make_schedule(graph, schedule).value().step_ms;
    measure("schedule " + schedule,
            std::to_string(stages) + " stages x " + std::to_string(microbatches) + " microbatches",
            0, 3, "step " + std::to_string(step_ms) + " ms",
            [&] { (void)make_schedule(graph, schedule).value(); });
  }
}

/// False if the search finds nothing.
bool bench_layout(int devices, LayoutObjective objective, Placement placement) {
  LayoutInput input;
  const std::map<std::pair<std::int32_t, std::int32_t>, double> speedup = {
      {{2, 1}, 1.8}, {{4, 1}, 3.2}, {{8, 1}, 5.5}};
  input.modules = {{"vision", {1}, false, 32, 1e10, {1, 2, 4, 8}, {1, 2, 4}, speedup},
                   {"llm", {}, false, 48, 1.2e11, {1, 2, 4, 8}, {1, 2, 4}, speedup}};
  Random random(1);
  for (int s = 0; s < 500; ++s) {
    const double vision = 20 + 200 * random.uniform() * random.uniform();
    const double llm = 60 + 150 * random.uniform();
    input.samples.push_back(
        {{vision, 2 * vision, vision * 2e7, vision * 1e5}, {llm, 2 * llm, llm * 3e7, 0}});
  }
  input.devices = devices;
  input.devices_per_node = 8;
  input.device_memory_bytes = 8e10;
  input.global_batch = 4096;
  input.microbatch_sizes = {1, 2, 4};
  input.node_gigabytes_per_s = 200;
  input.network_gigabytes_per_s = 25;
  input.objective = objective;
  input.placement = placement;
  const std::string name = std::string(objective == LayoutObjective::dflop ? "dflop" : "entrain") +
                           (placement == Placement::shared ? ", shared" : ", disjoint");
  const auto choice = search_layout(input);
  const std::string size = std::to_string(devices) + " devices";
  if (!choice.ok()) {  // A search that fails would be measured as a fast one.
    std::cerr << "search a layout: " << name << ", " << size << ": " << choice.error().message
              << '\n';
    return false;
  }
  measure("search a layout: " + name, size, devices == 1024 ? 200 : 0, 5,
          std::to_string(choice.value().evaluated) + " layouts costed",
          [&] { (void)search_layout(input).value(); });
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::string(argv[1]) == "quick";
  bool found = true;
  bench_schedules(16, 64);
  bench_schedules(64, 256);
  for (const int devices : {64, 256, 1024})
    for (const auto objective : {LayoutObjective::entrain, LayoutObjective::dflop})
      for (const auto placement : {Placement::disjoint, Placement::shared})
        // Encoders that share devices hold all their microbatches: too much for 64.
        if (placement == Placement::disjoint || devices > 64)
          found = bench_layout(devices, objective, placement) && found;
  bench_plan(8, 64);
  bench_plan(1'000, 64);
  if (!quick) bench_plan(10'000, 64);
  return found ? 0 : 1;
}
