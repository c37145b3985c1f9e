// Random layouts, samples and microbatches for the planners' property tests.

#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "runtime/vocabulary/hand_layout.hpp"
#include "scheduler/iteration/plan_iteration.hpp"
#include "scheduler/iteration/schedules.hpp"
#include "scheduler/layout/place_by_hand.hpp"
#include "scheduler/state/standby_holders.hpp"
#include "tests/scheduler/example_models.hpp"

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

/// Any layout of a model, some of whose stages stand on grids of any devices of their node; half of
/// each layer is shared by tensor-parallel ranks.
inline ParallelPlan random_grid_plan(std::mt19937& random, ModelGraph model) {
  for (auto& module : model.modules)
    for (auto& layer : module.layers)
      layer.splits = {{layer.parameter_elements / 2, draw(random, 0, 2)}};
  for (;;) {
    HandLayout layout =
        draw(random, 0, 2) == 0 ? random_replicas(model, random) : random_pipelines(model, random);
    const int per_node = 4, nodes = draw(random, 1, 3);
    const auto place = [&](HandStage& stage) {
      stage.node = draw(random, 0, nodes - 1);
      stage.tp = 1 << draw(random, 0, 1);
      stage.cp = 1 << draw(random, 0, 1);
      std::vector<std::int32_t> devices{0, 1, 2, 3};
      if (draw(random, 0, 3) == 0) std::shuffle(devices.begin(), devices.end(), random);
      const auto ranks = static_cast<std::ptrdiff_t>(stage.tp * stage.cp);
      const auto first = draw(random, 0, 4 / static_cast<int>(ranks) - 1) * ranks;
      stage.devices.assign(devices.begin() + first, devices.begin() + first + ranks);
    };
    for (auto& pipeline : layout.pipelines) std::ranges::for_each(pipeline, place);
    for (auto& replica : layout.replicas) std::ranges::for_each(replica.stages, place);
    auto plan = place_by_hand(model, layout, {nodes, per_node}, IdleDevices::left_out);
    if (plan.ok()) return std::move(plan).value();
  }
}

inline std::vector<SampleShape> random_samples(std::mt19937& random, bool media, int count) {
  const int flavour = draw(random, 0, 3);  // Text only, images only, audio only, anything.
  std::vector<SampleShape> samples;
  for (int s = 0; s < count; ++s) {
    const int images = media && (flavour == 1 || flavour == 3) ? draw(random, 0, 2) : 0;
    const int windows = media && (flavour == 2 || flavour == 3) ? draw(random, 0, 2) : 0;
    samples.push_back(sample(images, windows, draw(random, 1, 20)));
  }
  return samples;
}

/// Encoder microbatches cut into parts, some of them deferred: their llm part lies in the next
/// microbatch of its replica, in the one after, or in another replica.
inline std::vector<MicrobatchList> random_deferral(const ParallelPlan& plan,
                                                   std::vector<MicrobatchList> list,
                                                   std::mt19937& random) {
  std::vector<std::size_t> llms, first_group;
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    if (plan.is_llm(ReplicaId{r})) llms.push_back(r);
    if (!plan.is_llm(ReplicaId{r}) && plan.replicas[r].group == ModuleGroupId{0})
      first_group.push_back(r);
  }
  const auto place_of = [&](std::int32_t sample) {  // Its llm replica and microbatch.
    for (const auto r : llms)
      for (std::size_t m = 0; m < list[r].size(); ++m) {
        const auto& own = list[r][m].parts[0].samples;
        if (std::find(own.begin(), own.end(), sample) != own.end()) return std::pair{r, m};
      }
    return std::pair{llms.front(), std::size_t{0}};
  };
  for (const auto r : first_group) {
    for (auto& microbatch : list[r]) {
      auto& parts = microbatch.parts;
      if (parts[0].samples.size() < 2 || draw(random, 0, 1) == 0) continue;
      const auto sample = parts[0].samples.back();
      const auto [replica, place] = place_of(sample);
      parts[0].samples.pop_back();
      parts.push_back({{sample}});
      auto& from = list[replica][place].parts[0].samples;
      if (from.size() < 2) continue;
      from.erase(std::find(from.begin(), from.end(), sample));
      const auto other =
          llms[static_cast<std::size_t>(draw(random, 0, static_cast<int>(llms.size()) - 1))];
      auto& to = list[other].empty() ? list[replica] : list[other];
      const std::size_t later = place + static_cast<std::size_t>(draw(random, 0, 2));
      to[std::min(later, to.size() - 1)].parts.back().samples.push_back(sample);
    }
  }
  return list;
}

/// The plan with standby holders of one or two losses, and now and then nodes without a stage.
inline ParallelPlan with_standbys(ParallelPlan plan, std::mt19937& random) {
  for (int spares = draw(random, 0, 2), node = 100; spares > 0; --spares)
    plan.devices.push_back({NodeId{node++}, 0});
  const auto most = static_cast<int>(plan.nodes().size()) - 1;
  return add_standbys(std::move(plan), {std::min(most, draw(random, 1, 2)), Dtype::fp32}).value();
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
  result.input.schedule = schedule_names()[seed % schedule_names().size()];
  return result;
}

}  // namespace troupe::scheduler::testing
