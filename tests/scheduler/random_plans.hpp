// Random layouts, samples and microbatches for the planners' property tests.

#pragma once

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "runtime/vocabulary/hand_layout.hpp"
#include "scheduler/iteration/plan_iteration.hpp"
#include "scheduler/iteration/schedules.hpp"
#include "scheduler/layout/place_by_hand.hpp"
#include "scheduler/state/standby_holders.hpp"
#include "tests/scheduler/example_models.hpp"
#include "tests/scheduler/random_batches.hpp"

namespace troupe::scheduler::testing {

/// A plan and what to plan an iteration from.
struct RandomCase {
  ParallelPlan plan;
  IterationInput input;
};

/// Any combination of frozen modules, a layer without parameters, sometimes a tied head.
inline ModelGraph random_model(std::mt19937& random) {
  ModelGraph graph = draw(random, 0, 5) == 0 ? text_llm(draw(random, 2, 6)) : vision_audio_llm();
  for (auto& module : graph.modules) {
    module.freeze = draw(random, 0, 1) == 1;
    if (draw(random, 0, 3) == 0) module.layers[0].parameter_elements = 0;
    // Large enough to be summed in chunks.
    if (draw(random, 0, 3) == 0) module.layers.back().parameter_elements = 20'000;
  }
  if (draw(random, 0, 2) == 0) {
    const ModuleId llm = graph.llm();
    const auto last = static_cast<std::int32_t>(graph.at(llm).layers.size()) - 1;
    graph.tied.push_back({"llm.embed_tokens.weight", {{llm, 0}, {llm, last}}, 640});
  }
  return graph;
}

/// Cuts each module where it likes; stages sometimes take a piece of another module as well.
inline std::vector<HandStage> random_stages(const ModelGraph& model,
                                            const std::vector<std::string>& modules,
                                            std::mt19937& random) {
  std::vector<HandStage> stages;
  for (const auto& module : model.modules) {
    if (std::find(modules.begin(), modules.end(), module.name) == modules.end()) continue;
    if (module.kind == ModuleKind::projector && draw(random, 0, 1) == 0) continue;
    const int count = static_cast<int>(module.layers.size());
    for (int begin = 0; begin < count;) {
      const int end = draw(random, begin + 1, std::min(count, begin + 3));
      const HandRun run{module.name, LayerRange{begin, end}};
      if (!stages.empty() && draw(random, 0, 2) == 0) {
        // Mostly the stage before, sometimes any: place_by_hand refuses circles.
        const int last = static_cast<int>(stages.size()) - 1;
        const int chosen = draw(random, 0, 3) == 0 ? draw(random, 0, last) : last;
        stages[static_cast<std::size_t>(chosen)].runs.push_back(run);
      } else {
        stages.push_back({0, 0, {run}});
      }
      begin = end;
    }
  }
  return stages;
}

/// Up to three complete pipelines with cuts of their own.
inline HandLayout random_pipelines(const ModelGraph& model, std::mt19937& random) {
  std::vector<std::string> all;
  for (const auto& module : model.modules) all.push_back(module.name);
  HandLayout layout;
  for (int p = draw(random, 1, 3); p > 0; --p)
    layout.pipelines.push_back(random_stages(model, all, random));
  return layout;
}

/// Up to three replicas of each group, the encoders together or apart, in any order.
inline HandLayout random_replicas(const ModelGraph& model, std::mt19937& random) {
  std::vector<std::vector<std::string>> groups{{model.at(model.llm()).name}};
  const bool together = draw(random, 0, 1) == 1;
  for (const auto& module : model.modules) {
    if (module.kind != ModuleKind::encoder) continue;
    if (together && groups.size() > 1)
      groups.back().push_back(module.name);
    else
      groups.push_back({module.name});
  }
  HandLayout layout;
  for (const auto& group : groups)
    for (int r = draw(random, 1, 3); r > 0; --r)
      layout.replicas.push_back({group, random_stages(model, group, random)});
  std::shuffle(layout.replicas.begin(), layout.replicas.end(), random);
  return layout;
}

/// Places what it drew for this model, or refuses it.
inline Result<ParallelPlan> draw_plan(const ModelGraph& model, std::mt19937& random) {
  HandLayout layout =
      draw(random, 0, 2) == 0 ? random_replicas(model, random) : random_pipelines(model, random);
  std::vector<HandStage*> entries;
  for (auto& pipeline : layout.pipelines)
    for (auto& stage : pipeline) entries.push_back(&stage);
  for (auto& replica : layout.replicas)
    for (auto& stage : replica.stages) entries.push_back(&stage);
  const int per_node = draw(random, 1, 2);
  const int nodes = draw(random, 1, std::max(1, static_cast<int>(entries.size()) / per_node));
  const int devices = nodes * per_node;
  std::shuffle(entries.begin(), entries.end(), random);
  for (std::size_t e = 0; e < entries.size(); ++e) {
    const int device =
        static_cast<int>(e) < devices ? static_cast<int>(e) : draw(random, 0, devices - 1);
    entries[e]->node = device / per_node;
    entries[e]->device = device % per_node;
  }
  return place_by_hand(model, layout, {nodes, per_node});
}

/// A layout of either form on as many devices as chance likes.
inline ParallelPlan random_plan(std::mt19937& random) {
  for (;;) {
    auto plan = draw_plan(random_model(random), random);
    if (plan.ok()) return std::move(plan).value();
  }
}

/// Nodes of so many devices, and grids of these numbers of ranks.
struct DrawnGrids {
  int per_node = 4;
  std::vector<int> tp{1, 2}, cp{1, 2};
};
inline const DrawnGrids kLargeGrids{12, {1, 2, 4}, {1, 2, 3}};

/// Any layout of a model, some of whose stages stand on grids of any devices of their node; half of
/// each layer is shared by tensor-parallel ranks.
inline ParallelPlan random_grid_plan(std::mt19937& random, ModelGraph model,
                                     const DrawnGrids& grids = {}) {
  for (auto& module : model.modules)
    for (auto& layer : module.layers)
      layer.splits = {{layer.parameter_elements / 2, draw(random, 0, 2)}};
  for (;;) {
    HandLayout layout =
        draw(random, 0, 2) == 0 ? random_replicas(model, random) : random_pipelines(model, random);
    const int per_node = grids.per_node, nodes = draw(random, 1, 3);
    const auto one_of = [&](const std::vector<int>& sizes) {
      return sizes[static_cast<std::size_t>(draw(random, 0, static_cast<int>(sizes.size()) - 1))];
    };
    const auto place = [&](HandStage& stage) {
      stage.node = draw(random, 0, nodes - 1);
      stage.tp = one_of(grids.tp);
      stage.cp = one_of(grids.cp);
      std::vector<std::int32_t> devices(static_cast<std::size_t>(per_node));
      std::iota(devices.begin(), devices.end(), 0);
      if (draw(random, 0, 3) == 0) std::shuffle(devices.begin(), devices.end(), random);
      const auto ranks = static_cast<std::ptrdiff_t>(stage.tp * stage.cp);
      const auto first = draw(random, 0, per_node / static_cast<int>(ranks) - 1) * ranks;
      stage.devices.assign(devices.begin() + first, devices.begin() + first + ranks);
    };
    for (auto& pipeline : layout.pipelines) std::ranges::for_each(pipeline, place);
    for (auto& replica : layout.replicas) std::ranges::for_each(replica.stages, place);
    auto plan = place_by_hand(model, layout, {nodes, per_node}, IdleDevices::left_out);
    if (plan.ok()) return std::move(plan).value();
  }
}

/// The plan with standby holders of one or two losses, and now and then nodes without a stage.
inline ParallelPlan with_standbys(ParallelPlan plan, std::mt19937& random) {
  for (int spares = draw(random, 0, 2), node = 100; spares > 0; --spares)
    plan.devices.push_back({NodeId{node++}, 0});
  const auto most = static_cast<int>(plan.nodes().size()) - 1;
  return add_standbys(std::move(plan), {std::min(most, draw(random, 1, 2)), Dtype::fp32}).value();
}

/// Some samples are seen by some nodes of the layout alone, of which one decodes them.
inline void hide_samples(const ParallelPlan& plan, std::vector<SampleShape>& samples,
                         std::mt19937& random) {
  const auto all = plan.nodes();
  for (SampleShape& sample : samples) {
    for (ModuleMedia& media : sample.media) {
      media.columns = draw(random, 1, 9);
      if (media.items.front().grid_height == 0) continue;
      media.equal_frames = media.columns % 3;  // Of 0 no pixels are known.
      if (media.equal_frames > 0) media.columns *= 3 * media.equal_frames;
    }
    if (draw(random, 0, 2) == 0) continue;
    for (const NodeId node : all)
      if (draw(random, 0, 2) == 0) sample.seen_by.push_back(node);
    if (sample.seen_by.empty()) sample.seen_by.push_back(*all.begin());
    const int last = static_cast<int>(sample.seen_by.size()) - 1;
    sample.decoder = sample.seen_by[static_cast<std::size_t>(draw(random, 0, last))];
  }
}

inline RandomCase random_case(std::uint32_t seed) {
  std::mt19937 random(seed);
  RandomCase result{random_plan(random), {}};
  std::mt19937 tolerance(seed + 1'000'000);
  if (draw(tolerance, 0, 1) == 1) result.plan = with_standbys(std::move(result.plan), tolerance);
  const int count = draw(random, 0, 14);
  const int microbatches = std::vector<int>{1, 3, 8}[static_cast<std::size_t>(draw(random, 0, 2))];
  result.input.samples = random_samples(random, result.plan.model.modules.size() > 1, count);
  result.input.microbatches = assign_by_count(result.plan, count, microbatches);
  if (draw(random, 0, 1) == 1)
    result.input.microbatches = random_deferral(result.plan, result.input.microbatches, random);
  std::mt19937 pieces(seed + 2'000'000);
  if (draw(pieces, 0, 2) == 0) random_pieces(result.plan, result.input, pieces);
  std::mt19937 sources(seed + 3'000'000);
  if (draw(sources, 0, 2) == 0) hide_samples(result.plan, result.input.samples, sources);
  std::mt19937 offloads(seed + 4'000'000);
  result.input.offload_encoders = draw(offloads, 0, 2) == 0;
  std::mt19937 routes(seed + 5'000'000);
  constexpr Route kPins[] = {Route::direct, Route::leader, Route::gather_scatter};
  if (draw(routes, 0, 3) > 0) result.input.routes.pin = kPins[std::min(draw(routes, 0, 3), 2)];
  result.input.schedule = schedule_names()[seed % schedule_names().size()];
  return result;
}

/// Some modules' moments are in host memory, of whatever kind the modules are.
inline void draw_host_state(ParallelPlan& plan, std::uint32_t seed) {
  std::mt19937 hosts(seed + 6'000'000);
  for (auto& module : plan.model.modules)
    module.moments_in_host = !module.freeze && draw(hosts, 0, 1) == 1;
}

/// Has parameters of encoders in host memory while others compute, those of an llm never.
inline void draw_host_parameters(ParallelPlan& plan, std::uint32_t seed) {
  std::mt19937 hosts(seed + 7'000'000);
  for (auto& module : plan.model.modules)
    module.parameters_in_host = module.kind != ModuleKind::llm && draw(hosts, 0, 2) > 0;
}

}  // namespace troupe::scheduler::testing
