// Checks an order of named actions against the stage times it was made for.
//
// Pure. The sibling of check_plan.hpp for orders that carry no messages.

#pragma once

#include <string>
#include <vector>

#include "runtime/vocabulary/result.hpp"
#include "scheduler/check/fault.hpp"
#include "scheduler/cost/stage_times.hpp"

namespace troupe::scheduler {

/// `F0`, `B0`, `I0`, `W0`; `B0.1` with its part where the microbatch has several on that stage;
/// `llm.0:F0` with its stage where the device has several (`is_shared` of the stage).
std::string action_name(const PipelineTimes& times, const Task& task, bool with_stage);

/// Per stage: true if another stage runs on its device.
std::vector<bool> is_shared(const PipelineTimes& times);

/// The order of one device, as action names.
struct NamedOrder {
  std::string device;
  std::int32_t index = -1;  ///< Of the device; -1: there is no such device.
  std::vector<std::string> actions;
};

/// All faults of an order; empty: it runs to its end, does everything once, and `max_in_flight`
/// (per stage; 0: any) holds. `F0` or `B0` of a microbatch with several parts means all of them in
/// turn. A part with an `I` or `W` anywhere must have both, any other part a `B`.
///
/// REQUIRES: check_times(times).ok(), max_in_flight has an entry per stage.
std::vector<Fault> check_order(const PipelineTimes& times, const std::vector<NamedOrder>& order,
                               const std::vector<std::int32_t>& max_in_flight);

}  // namespace troupe::scheduler
