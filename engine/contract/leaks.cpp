#include "engine/contract/leaks.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/state/memory_count.hpp"
#include "runtime/vocabulary/index.hpp"
#include "runtime/vocabulary/user_code.hpp"

namespace troupe::engine {

namespace {

constexpr int kRounds = 4;
constexpr std::size_t kNamed = 5;

/// A layer that keeps memory by itself.
struct LeakingLayer {
  std::string name;
  std::int64_t bytes = 0;  ///< Of each round.
};

/// What was found of a stage's layers.
struct TriedLayers {
  std::vector<LeakingLayer> leaking;  ///< In the order of the model.
  bool is_each_tried = true;          ///< None that cannot run alone.
};

/// What a layer keeps that is a stage of its own; nothing: it cannot run so.
Result<std::optional<std::int64_t>> kept_alone(const StageBench& layers, StageId id) {
  const auto state = layers.state(id);
  if (!state.ok()) return state.error();
  const auto stage = layers.make_built_in(id, state.value());
  if (!stage.ok()) return stage.error();
  const StageRows inputs = layers.draw_inputs(id);
  return kept_by_each([&] {
    const bool fine = layers.round(*stage.value(), id, {}, inputs).ok();
    stage.value()->abandon();
    return fine;
  });
}

TriedLayers try_layers(const StageBench& whole, StageId id, const std::function<void()>& on_begin) {
  TriedLayers tried;
  const auto made = whole.layered();
  if (!made.ok()) {
    tried.is_each_tried = false;
    return tried;
  }
  const StageBench& layers = *made.value();
  const auto is_of_stage = [&](const LayerRun& layer) {
    return std::ranges::any_of(whole.plan().at(id).runs, [&](const LayerRun& run) {
      return run.module == layer.module && run.layers.begin <= layer.layers.begin &&
             layer.layers.begin < run.layers.end;
    });
  };
  for (std::size_t s = 0; s < layers.plan().stages.size(); ++s) {
    const LayerRun& layer = layers.plan().stages[s].runs.front();
    if (!is_of_stage(layer)) continue;
    on_begin();
    const auto kept = call_guarded(Errc::internal, [&] { return kept_alone(layers, StageId{s}); });
    const std::int64_t bytes = kept.ok() ? kept.value().value_or(-1) : -1;
    if (bytes < 0) tried.is_each_tried = false;
    if (bytes <= 0) continue;
    const ModuleSpec& module = layers.plan().model.at(layer.module);
    tried.leaking.push_back({module.layers[at(layer.layers.begin)].name, bytes});
  }
  return tried;
}

}  // namespace

std::optional<std::int64_t> kept_by_each(const std::function<bool()>& round) {
  const CountMemory count;
  std::vector<std::int64_t> bytes;
  for (int i = 0; i < kRounds; ++i) {
    if (!round()) return std::nullopt;
    at::empty({1});  // The count comes with an allocation.
    bytes.push_back(count.total());
  }
  // What the first round makes for all that follow is no leak.
  return bytes[1] < bytes[2] && bytes[2] < bytes[3] ? bytes[3] - bytes[2] : 0;
}

Breach leak_of(const StageBench& bench, StageId id, std::int64_t bytes,
               const std::function<void()>& on_begin) {
  Breach leak{
      "memory", "each round keeps " + std::to_string(bytes) + " bytes for good",
      "tensors that a layer keeps: in a member, in something static, in a graph of autograd"};
  const auto [layers, is_each_tried] = try_layers(bench, id, on_begin);
  for (std::size_t i = 0; i < std::min(layers.size(), kNamed); ++i)
    leak.found += (i == 0 ? "; by itself layer '" : ", layer '") + layers[i].name + "' keeps " +
                  std::to_string(layers[i].bytes);
  if (layers.size() > kNamed)
    leak.found += ", and " + std::to_string(layers.size() - kNamed) + " more keep some";
  if (!layers.empty()) return leak;
  const std::string kind = bench.kind_of(id);
  if (!is_each_tried) {
    leak.found += "; not each of its layers can be tried by itself";
  } else if (kind.empty()) {
    leak.found += "; no layer does so by itself";
  } else {
    leak.found += "; its layers, run by the engine's own stage, keep none";
    leak.fix = "tensors that stage kind '" + kind + "' keeps";
  }
  return leak;
}

}  // namespace troupe::engine
