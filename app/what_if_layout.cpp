#include "app/what_if_layout.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "app/planning_text.hpp"
#include "app/progress.hpp"
#include "engine/setup/source_nodes.hpp"
#include "scheduler/cost/state_bytes.hpp"
#include "scheduler/iteration/stage_graph.hpp"
#include "scheduler/layout/layout_score.hpp"
#include "scheduler/recovery/instantiate.hpp"
#include "scheduler/recovery/template_layout.hpp"

namespace troupe::app {

namespace {

using scheduler::RankList;

/// Nodes of each pipeline, ascending; empty where two pipelines share one.
std::vector<RankList> nodes_of_pipelines(const scheduler::AutoLayout& layout) {
  std::vector<std::set<std::int64_t>> nodes(layout.plan.pipelines.size());
  for (std::size_t s = 0; s < layout.plan.stages.size(); ++s)
    nodes[layout.plan.pipeline_of(StageId{s}).index()].insert(
        layout.plan.node_of(StageId{s}).value);
  std::set<std::int64_t> seen;
  std::size_t all = 0;
  std::vector<RankList> lists;
  for (const auto& own : nodes) {
    lists.emplace_back(own.begin(), own.end());
    seen.insert(own.begin(), own.end());
    all += own.size();
  }
  if (seen.size() < all) lists.clear();
  return lists;
}

/// Bytes of parameters and optimizer state: what a new holder must receive. Gradients are made
/// anew.
std::vector<std::int64_t> bytes_of_layers(const Planning& planning) {
  const auto dtype = planning.setup.job.train.dtype;
  const double element = scheduler::bytes_per_element(dtype);
  const double trained = scheduler::state_bytes_per_trained_element(dtype) -
                         scheduler::gradient_bytes_per_element(dtype);
  std::vector<std::int64_t> bytes;
  const ModelGraph& model = planning.setup.model;
  for (std::size_t m = 0; m < model.modules.size(); ++m)
    for (std::size_t l = 0; l < model.modules[m].layers.size(); ++l) {
      const LayerSpec& layer = model.modules[m].layers[l];
      const auto elements = layer.parameter_elements +
                            tied_elements_begun(model, {ModuleId{m}, static_cast<std::int32_t>(l)});
      bytes.push_back(static_cast<std::int64_t>(
          static_cast<double>(elements) * (model.modules[m].freeze ? element : trained) +
          static_cast<double>(layer.constant_elements) * element));
    }
  return bytes;
}

/// Who holds what in each pipeline, and its time per microbatch as a template would count it.
Result<std::vector<scheduler::RunningPipeline>> running_pipelines(
    const Planning& planning, const scheduler::AutoLayout& layout,
    const std::vector<LayerId>& layers, const RankList& lost) {
  const auto& plan = layout.plan;
  scheduler::LayoutScorer scorer(planning.request);
  const auto weights = scorer.weights(static_cast<std::int32_t>(plan.pipelines.size()),
                                      scheduler::module_degrees(plan));
  if (!weights.ok()) return weights.error();
  std::map<LayerId, std::size_t> index;
  for (std::size_t i = 0; i < layers.size(); ++i) index[layers[i]] = i;
  const auto microbatches = static_cast<double>(planning.request.microbatches);
  std::vector<scheduler::RunningPipeline> running;
  for (std::size_t p = 0; p < plan.pipelines.size(); ++p) {
    scheduler::RunningPipeline& made = running.emplace_back();
    made.holders.resize(layers.size());
    std::map<DeviceId, double> work;
    double sum = 0, slowest = 0;  // A stage counts once, however many devices it has.
    for (const StageId stage : plan.stages_of(PipelineId{p}))
      for (const auto& run : plan.stages[stage.index()].runs)
        for (auto layer = run.layers.begin; layer < run.layers.end; ++layer) {
          const auto i = index[{run.module, layer}];
          made.holders[i].push_back(plan.node_of(stage).value);
          sum += weights.value().work_ms[i];
          for (const DeviceId device : plan.at(stage).devices)
            work[device] += weights.value().work_ms[i];
        }
    for (const auto& [device, ms] : work) slowest = std::max(slowest, ms);
    made.microbatch_ms = (sum + (microbatches - 1) * slowest) / microbatches;
  }
  // Standby holders belong to no pipeline; the first one speaks for those that are left.
  for (const Standby& standby : plan.standbys) {
    const auto node = plan.devices[standby.device.index()].node.value;
    if (standby.tied.empty() && std::find(lost.begin(), lost.end(), node) == lost.end())
      running.front().holders[index[standby.layer]].push_back(node);
  }
  return running;
}

/// Samples of a microbatch: the divisor of the batch next below what the job's mean is.
std::int64_t microbatch_size(const Planning& planning, std::size_t pipelines) {
  const auto batch = planning.request.global_batch;
  auto size = std::max<std::int64_t>(
      1, batch / (planning.request.microbatches * static_cast<std::int64_t>(pipelines)));
  while (batch % size != 0) --size;
  return size;
}

Result<std::vector<RankList>> instantiated_pipelines(const Planning& planning,
                                                     const scheduler::WhatIfRequest& request) {
  scheduler::InstantiateRequest wanted;
  for (const auto& made : request.templates.templates)
    wanted.templates.push_back({made.node_count, made.microbatch_ms});
  wanted.node_count = planning.request.cluster.nodes;
  wanted.fault_tolerance = request.fault_tolerance;
  wanted.global_batch = request.global_batch;
  wanted.microbatch_size = request.microbatch_size;
  const auto chosen = scheduler::instantiate(wanted);
  if (!chosen.ok()) return chosen.error();
  std::vector<RankList> pipelines;
  std::int64_t next = 0;
  for (const auto& share : chosen.value().pipelines) {
    pipelines.emplace_back(static_cast<std::size_t>(share.node_count));
    std::iota(pipelines.back().begin(), pipelines.back().end(), next);
    next += share.node_count;
  }
  return pipelines;
}

/// A batch where surviving nodes are counted anew, by their place; without one that sees a sample
/// the layout says so.
std::vector<SampleShape> batch_for(const Planning& planning,
                                   const std::map<std::int64_t, std::int32_t>& place) {
  auto samples = draw_batch(planning, planning.request.seed);
  for (SampleShape& sample : samples) {
    for (NodeId& node : sample.seen_by) {
      const auto found = place.find(node.value);
      node = found == place.end() ? NodeId{} : NodeId{found->second};
    }
  }
  return samples;
}

/// The simulated step of a configuration; none where the simulator has no such layout.
std::optional<double> simulated_step(const Planning& planning, const WhatIfAnswer& answer,
                                     const scheduler::AutoLayout& now,
                                     const scheduler::Configuration& configuration) {
  const auto& model = planning.setup.model;
  for (const Stage& stage : now.plan.stages)
    if (stage.grid.ranks() > 1) return std::nullopt;  // Templates have stages of one device alone.
  std::map<std::int64_t, std::int32_t> place;         // Surviving nodes are counted anew.
  for (const auto& nodes : configuration.pipelines)
    for (const auto node : nodes) place[node] = 0;
  std::int32_t next = 0;
  for (auto& [node, index] : place) index = next++;
  const auto& before = answer.request.pipelines;
  scheduler::AutoLayout made;
  for (const auto& nodes : configuration.pipelines) {
    const auto old = std::find(before.begin(), before.end(), nodes);
    if (old != before.end() && !answer.from_templates) {
      auto stages = now.layout.pipelines[static_cast<std::size_t>(old - before.begin())];
      for (auto& stage : stages) stage.node = place[stage.node];
      made.layout.pipelines.push_back(std::move(stages));
      continue;
    }
    for (const auto& candidate : answer.request.templates.templates) {
      if (static_cast<std::size_t>(candidate.node_count) != nodes.size()) continue;
      std::vector<std::int32_t> places;
      for (const auto node : nodes) places.push_back(place[node]);
      auto stages = scheduler::stages_of_template(model, scheduler::layers_of(model), candidate,
                                                  places, answer.request.templates.stage_kinds);
      if (!stages) return std::nullopt;
      made.layout.pipelines.push_back(std::move(*stages));
    }
  }
  auto plan = scheduler::place_by_hand(model, made.layout,
                                       {next, planning.request.cluster.devices_per_node});
  if (!plan.ok()) return std::nullopt;
  made.plan = std::move(plan).value();
  // The second step: its deal has learned from the first how fast each pipeline is.
  auto training = training_on_paper(planning, made);
  const auto first = training.step(batch_for(planning, place));
  if (!first.ok()) return std::nullopt;
  const auto second = training.step(batch_for(planning, place));
  if (!second.ok()) return std::nullopt;
  return second.value().step.step_ms;
}

/// A node without a stage is no loss; the others of its kind step in for a node that is one.
void use_spares(const Planning& planning, WhatIfAnswer& answer) {
  auto& request = answer.request;
  std::set<std::int64_t> working;
  for (const auto& nodes : request.pipelines) working.insert(nodes.begin(), nodes.end());
  std::erase_if(request.lost, [&](auto node) { return !working.contains(node); });
  if (request.lost.empty()) return;
  for (std::int64_t node = 0; node < planning.request.cluster.nodes; ++node)
    if (!working.contains(node) &&
        std::find(answer.lost.begin(), answer.lost.end(), node) == answer.lost.end())
      answer.spare.push_back(node);
  request.joined.insert(request.joined.end(), answer.spare.begin(), answer.spare.end());
}

/// Whether the nodes that are then there see all data, as a job asks before it goes on.
Status check_data(const Planning& planning, const RankList& lost, const RankList& joined) {
  std::set<NodeId> nodes;
  for (std::int32_t node = 0; node < planning.request.cluster.nodes; ++node)
    if (std::find(lost.begin(), lost.end(), node) == lost.end()) nodes.insert(NodeId{node});
  for (const auto node : joined) nodes.insert(NodeId{static_cast<std::int32_t>(node)});
  auto seen = engine::check_sources(planning.setup.job, nodes);
  if (seen.ok()) return seen;
  Error error = seen.error();
  error.fix =
      "after such a loss the job ends, and goes on from its last checkpoint with such a node";
  return error;
}

/// The layout that a change can be planned for. What the planner would choose instead, if it would,
/// goes to `instead`.
Result<scheduler::AutoLayout> changeable_layout(const Planning& planning, std::string& instead) {
  const auto refused = [](const std::string& why, const std::string& where,
                          const std::string& fix) {
    return Error{Errc::unavailable,
                 "changes of a layout with replicas of its own for each module group cannot be "
                 "planned yet" +
                     why,
                 where, fix};
  };
  if (!planning.setup.job.parallel.layout.replicas.empty() && planning.by_hand)
    return refused("", "parallel.replicas",
                   "write the layout as [[parallel.pipelines]], or leave it out");
  auto layout = make_layout(planning);
  if (!layout.ok() || planning.by_hand || layout.value().layout.replicas.empty()) return layout;
  const auto& reasons = layout.value().reasons;  // The first two speak of numbers.
  const std::string chosen =
      copies_text(layout.value().plan) + " (" + reasons[1].choice + ": " + reasons[1].why + ")";
  auto pipelines = make_layout(planning, true);
  if (!pipelines.ok())
    return refused("; the planner chooses " + chosen +
                       ", and with one number for all: " + pipelines.error().message,
                   "parallel", pipelines.error().fix);
  instead = "the planner would choose " + chosen +
            "; changes of such a layout cannot be planned yet, so this is the best one with one "
            "number for all";
  return pipelines;
}

}  // namespace

Result<WhatIfAnswer> answer_what_if(const Planning& planning, const RankList& lost,
                                    const RankList& joined) {
  WhatIfAnswer answer;
  if (auto seen = check_data(planning, lost, joined); !seen.ok()) return seen.error();
  const auto layout = changeable_layout(planning, answer.instead);
  if (!layout.ok()) return layout.error();
  const Progress progress("planning the change");
  const auto pipeline_count = layout.value().plan.pipelines.size();
  const auto layers = scheduler::layers_of(planning.setup.model);
  // A pipeline may come to span all nodes there are before or after.
  const std::int64_t now = planning.request.cluster.nodes;
  const std::int64_t then =
      now - static_cast<std::int64_t>(lost.size()) + static_cast<std::int64_t>(joined.size());
  auto set = planned_templates(planning, static_cast<std::int32_t>(pipeline_count),
                               std::max(now, then), 0);
  if (!set.ok()) return set.error();
  auto& request = answer.request;
  request.templates = std::move(set).value();
  request.layer_bytes = bytes_of_layers(planning);
  for (const auto& layer : layers)
    request.layer_names.push_back(
        planning.setup.model.at(layer.module).layers[static_cast<std::size_t>(layer.layer)].name);
  // Copies of everything need no pipelines of their own: standby holders keep them.
  request.fault_tolerance = std::min<std::int64_t>(planning.request.fault_tolerance,
                                                   static_cast<std::int64_t>(pipeline_count) - 1);
  request.global_batch = planning.request.global_batch;
  request.microbatch_size = microbatch_size(planning, pipeline_count);
  request.lost = answer.lost = lost;
  request.joined = joined;
  request.pipelines = nodes_of_pipelines(layout.value());
  answer.from_templates = request.pipelines.empty();
  if (answer.from_templates) {
    auto pipelines = instantiated_pipelines(planning, request);
    if (!pipelines.ok()) return pipelines.error();
    request.pipelines = std::move(pipelines).value();
  } else {
    auto running = running_pipelines(planning, layout.value(), layers, lost);
    if (!running.ok()) return running.error();
    request.running = std::move(running).value();
  }
  use_spares(planning, answer);
  auto change = scheduler::what_if(request);
  if (!change.ok()) {
    Error error = change.error();
    if (error.where == "holders") {
      error.where = "--lose";
      error.fix = "after such a loss the job goes on from its last checkpoint";
    }
    return error;
  }
  answer.change = std::move(change).value();
  answer.step_before_ms = simulated_step(planning, answer, layout.value(), answer.change.before);
  answer.step_after_ms = simulated_step(planning, answer, layout.value(), answer.change.after);
  const auto& network = planning.request.prediction.speeds.network;
  if (network.gigabytes_per_s > 0)
    answer.copy_ms =
        static_cast<double>(answer.change.copies.max_sent_bytes) / (network.gigabytes_per_s * 1e6);
  return answer;
}

}  // namespace troupe::app
