// A layout as a user writes it in the job file: which layers of which module run on which device.
//
// Values only, unchecked: `scheduler/layout/place_by_hand.hpp` turns one into a `ParallelPlan` or
// says what is wrong with it.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/vocabulary/model_graph.hpp"

namespace troupe {

/// `vision = [0, 4]` or `audio = "all"`.
struct HandRun {
  std::string module;
  std::optional<LayerRange> layers;  ///< None: all layers of the module.

  friend bool operator==(const HandRun&, const HandRun&) = default;
};

/// One entry of `stages`: `{node = 0, device = 1, vision = [0, 4], audio = "all"}`, or on several
/// devices `{node = 0, devices = [0, 1, 2, 3], tp = 2, cp = 2, llm = "all"}`.
struct HandStage {
  std::int32_t node = 0;
  std::int32_t device = 0;  ///< Which of the node's devices, where `devices` is empty.
  std::vector<HandRun> runs;
  std::vector<std::int32_t> devices = {};  ///< tp x cp of them, tp fastest; or none.
  std::int32_t tp = 1;
  std::int32_t cp = 1;

  /// Which of the node's devices it runs on.
  std::vector<std::int32_t> all_devices() const {
    return devices.empty() ? std::vector{device} : devices;
  }

  friend bool operator==(const HandStage&, const HandStage&) = default;
};

/// One table of `[[parallel.replicas]]`: a copy of a module group.
struct HandReplica {
  std::vector<std::string> modules;  ///< Of the group; a projector goes along with its encoder.
  std::vector<HandStage> stages;

  friend bool operator==(const HandReplica&, const HandReplica&) = default;
};

/// Either form, or none: then it is empty.
struct HandLayout {
  std::vector<std::vector<HandStage>> pipelines;  ///< `[[parallel.pipelines]]`: stages of each.
  std::vector<HandReplica> replicas = {};         ///< `[[parallel.replicas]]`.

  bool empty() const { return pipelines.empty() && replicas.empty(); }
  /// The stages of each table that holds a copy of the module.
  std::vector<const std::vector<HandStage>*> copies_of(const std::string& module) const {
    std::vector<const std::vector<HandStage>*> copies;
    for (const auto& stages : pipelines) copies.push_back(&stages);
    for (const auto& replica : replicas)
      for (const auto& own : replica.modules)
        if (own == module) copies.push_back(&replica.stages);
    return copies;
  }
  /// Stages of all tables.
  std::vector<const HandStage*> all_stages() const {
    std::vector<const HandStage*> list;
    for (const auto& stages : pipelines)
      for (const auto& stage : stages) list.push_back(&stage);
    for (const auto& replica : replicas)
      for (const auto& stage : replica.stages) list.push_back(&stage);
    return list;
  }

  friend bool operator==(const HandLayout&, const HandLayout&) = default;
};

}  // namespace troupe
