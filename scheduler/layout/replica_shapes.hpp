// Layouts of one number of llm replicas in which module groups have numbers of replicas of their
// own: devices shared out, replicas cut, what each candidate takes at a glance.
//
// Pure. Helper of replica_candidates.cpp. Single owner.

#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "scheduler/layout/auto_layout.hpp"
#include "scheduler/layout/device_shares.hpp"
#include "scheduler/layout/layout_candidates.hpp"
#include "scheduler/layout/layout_shapes.hpp"
#include "scheduler/layout/phase_memory.hpp"

namespace troupe::scheduler {

/// Which module groups share devices: none, or all encoders stand on the llm's.
enum class Sharing : std::uint8_t { disjoint, colocated };

/// What the devices of a candidate with numbers hold in a schedule of phases, where each llm
/// replica has so many microbatches in a step, and those of encoders are dealt evenly.
PhaseMemory held_by_replicas(const LayoutCandidate& candidate, ModuleId llm,
                             std::int64_t microbatches, Bytes device_memory);

/// The candidates of one number of llm replicas, grouping and choice of degrees.
class ReplicaShapes {
 public:
  /// References outlive this. `colocated` REQUIRES: a schedule of phases, and stages of the llm as
  /// wide as some stages of the encoders together.
  ReplicaShapes(const AutoLayoutRequest& request, const std::vector<Parallelism>& parallelisms,
                const std::vector<std::vector<ModuleId>>& groups, std::int32_t llm_replicas,
                std::shared_ptr<const LayerWeights> weights, Sharing sharing);

  /// The cheapest `count` that keep the pins and fit with one microbatch, cheapest first by bound.
  std::vector<LayoutCandidate> best(std::size_t count, double worst_ms);

  bool shared() const { return shared_; }        ///< Devices could be shared out.
  bool pins_kept() const { return pins_kept_; }  ///< With the pinned numbers of stages.
  double least_bytes() const { return least_bytes_; }
  const Error& place_error() const { return place_error_; }

 private:
  double memory() const { return static_cast<double>(request_.device_memory.count()); }
  void remember_least();
  GroupLoad load_of(const std::vector<ModuleId>& modules) const;
  GroupTimes times_of(const PipelineShape& shape) const;
  bool add_group(std::size_t g, const std::vector<GroupShare>& shares, LayoutCandidate& candidate,
                 std::vector<GroupTimes>& times);
  bool fits_in_phases(LayoutCandidate& candidate, const std::vector<GroupTimes>& times);
  std::optional<LayoutCandidate> cut(const std::vector<GroupShare>& shares);

  const AutoLayoutRequest& request_;
  const std::vector<Parallelism>& parallelisms_;
  const std::vector<std::vector<ModuleId>>& groups_;
  const std::shared_ptr<const LayerWeights> weights_;
  PipelineShapes shapes_;
  ShareRequest share_;
  const bool phases_;
  bool shared_ = false, pins_kept_ = false, over_memory_ = false;
  double least_bytes_ = std::numeric_limits<double>::infinity();
  Error place_error_;
};

}  // namespace troupe::scheduler
