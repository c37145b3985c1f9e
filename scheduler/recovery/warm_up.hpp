// How a device takes over state while the others train: layer by layer as a standby holder, before
// a layout gives it stages.
//
// State of a step arrives during the next one, whose sum and COMMIT the device hears like every
// holder; so it holds what the others hold from then on, and what comes later takes nothing from
// them.
//
// Pure; thread-safe; the same answer on every node.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/vocabulary/model_config.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::scheduler {

struct WarmUpRequest {
  const ParallelPlan& base;     ///< What trains, without anything that warms up.
  const ParallelPlan& present;  ///< The same with what has warmed up: `base` at first.
  const ParallelPlan& wanted;   ///< The layout to come; devices of it may be missing in `base`.
  Dtype dtype = Dtype::fp32;
  /// What comes to a device during one step, at most; a single unit may be more. > 0.
  Bytes at_a_time{};
};

/// A layout that trains as `base` does. Its standby holders are those of `base`, those of `present`
/// that `wanted` needs, and the next ones.
struct WarmUp {
  ParallelPlan plan;
  std::vector<Standby> arriving;  ///< Of its standbys: the next ones. None: all are warm.
  std::int64_t layouts_left = 0;  ///< That follow until none are missing.
};

/// Units that a device keeps in `wanted` and not in `present`, in model order, until `at_a_time` is
/// reached; each device of its own. Devices without anything to keep are not added.
WarmUp next_warm_up(const WarmUpRequest& request);

/// What a turnover to a layout that moves nothing costs, in milliseconds: stages are bound anew,
/// and the first step was not planned while another one ran.
inline constexpr double kTurnoverMs = 50;

/// What comes to a device during a step of `step_ms` over such a network (>= 0); none: waiting for
/// all of it would take no longer.
std::optional<Bytes> warm_up_at_a_time(double network_bytes_per_ms, double step_ms);

/// Whether all would wait longer for the state (`copy_ms`) than the layouts from `next` on cost.
bool warm_up_pays(const WarmUp& next, double copy_ms);

}  // namespace troupe::scheduler
