// Requests for layouts whose answers can be worked out by hand.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "scheduler/layout/auto_layout.hpp"
#include "tests/scheduler/example_models.hpp"

namespace troupe::scheduler::testing {

using Numbers = std::map<std::string, std::int32_t>;

/// Replicas of each module group, over all pipelines.
inline Numbers numbers_of(const ParallelPlan& plan) {
  Numbers numbers;
  for (const auto& replica : plan.replicas)
    ++numbers[plan.module_groups[replica.group.index()].name];
  return numbers;
}

/// Every layer a kind of its own: `weights[i]` ms forward, and as much for each gradient, per token
/// of layer i in model order; one byte of activations per token.
inline CostModel model_of(const ModelGraph& graph, const std::vector<double>& weights,
                          const std::vector<Parallelism>& degrees = {{}}) {
  Profile profile;
  std::size_t next = 0;
  for (const auto& module : graph.modules)
    for (const auto& layer : module.layers) {
      profile.layers.push_back({layer.name, layer.name});
      const double ms = weights[next++ % weights.size()];
      for (const auto p : degrees) {
        LayerProfile made{layer.name, p, CostOrigin::computed, Bytes{4}, {}};
        for (const TokenCount tokens : {1, 64, 1024}) {
          const double time = ms * static_cast<double>(tokens) / (p.tp * p.cp);
          made.points.push_back(
              {tokens, {time, time, time, static_cast<double>(tokens) / p.tp}, {}});
        }
        profile.profiles.push_back(std::move(made));
      }
    }
  return CostModel::create(graph, profile).value();
}

inline SampleShape text(TokenCount tokens) {
  SampleShape shape = sample(0, 0, tokens);
  shape.trained_tokens = tokens;  // The head then counts like any other layer.
  return shape;
}

/// Samples of up to two pictures, every other one with speech too, on so many nodes of one device.
/// `model` outlives the request; its graph is `vision_audio_llm`.
inline AutoLayoutRequest request_on(const CostModel& model, std::int32_t nodes) {
  AutoLayoutRequest request;
  request.model = &model;
  for (int i = 0; i < 6; ++i) request.samples.push_back(sample(i % 3, i % 2));
  request.cluster = {nodes, 1};
  request.global_batch = 8;
  request.microbatches = 2;
  return request;
}

/// Four layers one element wide: what crosses a boundary is 4 bytes per row.
inline ModelGraph narrow_llm() {
  ModelGraph graph = text_llm(4);
  graph.modules[0].hidden_width = graph.modules[0].output_width = 1;
  return split_by_ranks(std::move(graph));
}

/// Four equal layers of 1 ms per token and pass, two samples of one token, two devices.
struct FourLayers {
  CostModel model = model_of(narrow_llm(), {1});
  AutoLayoutRequest request;

  FourLayers() {
    request.model = &model;
    request.samples = {text(1), text(1)};
    request.cluster = {2, 1};
    request.global_batch = 2;
    request.microbatches = 2;
  }
  AutoLayout choose() const { return auto_layout(request).value(); }
  Error refuse() const { return auto_layout(request).error(); }
};

/// vision of one layer before an llm of one, all one element wide, 160 bytes of state each, of
/// which 40 are parameters. A sample keeps `kept` bytes in vision, whose output is a row of 4, and
/// 64 in the llm. Each byte takes a 64th of a millisecond and pass: vision has a forward and a
/// weight gradient, the llm all three. Four microbatches of a sample in phases, on one device.
struct OneOfEach {
  CostModel model;
  AutoLayoutRequest request;

  explicit OneOfEach(std::int32_t kept = 64, bool parameters_leave = false)
      : model(model_of(graph(parameters_leave), {1.0 / 64})) {
    SampleShape sample;
    sample.media = {{ModuleId{0}, {{kept, kept, 1, 1, 1}}}};
    sample.llm_tokens = sample.trained_tokens = 64;
    request.model = &model;
    request.samples = {sample};
    request.global_batch = request.microbatches = 4;
    request.cluster = {1, 1};
    request.schedule = "three-phase";
  }
  OneOfEach(const OneOfEach&) = delete;
  OneOfEach& operator=(const OneOfEach&) = delete;

  static ModelGraph graph(bool parameters_leave) {
    ModelGraph graph;
    graph.modules = {
        {"vision", ModuleKind::encoder, false, {ModuleId{1}}, layers("vision", 1), 1, 1},
        {"llm", ModuleKind::llm, false, {}, layers("llm", 1), 1, 1}};
    graph.modules[0].parameters_in_host = parameters_leave;
    return graph;
  }
  ParallelPlan on_one_device() const {
    HandLayout layout;
    auto& stages = layout.pipelines.emplace_back();
    stages.push_back({0, 0, {{"vision", {}}}});
    stages.push_back({0, 0, {{"llm", {}}}});
    return place_by_hand(model.graph(), layout, {1, 1}).value();
  }
};

}  // namespace troupe::scheduler::testing
