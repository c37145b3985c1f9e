// Names and places that a trace shows, from the plan that was executed.
//
// Pure values.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/observe/trace_event.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::observe {

/// What the writer needs of a ParallelPlan; indices are those of the plan.
struct TraceNames {
  std::vector<DeviceSlot> devices;
  std::vector<std::string> stages;                   ///< See stage_names.
  std::vector<std::string> groups;                   ///< Layer or tied parameter.
  std::vector<std::vector<DeviceId>> group_devices;  ///< Holders, in their order.
  std::vector<std::vector<DeviceId>> group_owners;   ///< Those that add up a chunk of it.
  std::vector<std::size_t> group_users;  ///< So many of the holders, the first, have gradients.

  friend bool operator==(const TraceNames&, const TraceNames&) = default;
};

/// One end of a transfer between two holders of a group.
struct SumEnd {
  bool is_return = false;  ///< Of a sum, from its owner; else of gradients, to the owner.
  bool begins = false;     ///< The event's end is the sender.
  DeviceId from;
  DeviceId to;
};

/// Groups with more holders show none: everybody sends to every owner.
inline constexpr std::size_t kSumHoldersShown = 8;

/// The transfers that begin or end in this event; none where it belongs to no group's sum.
std::vector<SumEnd> sum_ends(const TraceNames& names, const TraceEvent& event);

/// A name per stage: `vision` where the pipeline has the module's layers on one stage, else
/// `llm.stage2`, counted from 0 within the module's own stages of that replica; `llm.1.stage2`
/// where the pipeline has several replicas of the group. A stage of several modules is named after
/// its first; projectors and others that ride along do not count.
std::vector<std::string> stage_names(const ParallelPlan& plan);

TraceNames trace_names(const ParallelPlan& plan);

/// `vision F mb3`, `llm.stage2 B mb1.1` (second part), `reduce llm.layers.3`, `commit`,
/// `standby optimizer`. Ids outside of the names are printed as numbers.
std::string event_name(const TraceNames& names, const Action& action);

}  // namespace troupe::observe
