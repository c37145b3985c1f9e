// Names and places that a trace shows, from the plan that was executed.
//
// Pure values.

#pragma once

#include <compare>
#include <cstddef>
#include <string>
#include <vector>

#include "runtime/observe/trace_event.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::observe {

/// Chunks of a group's gradients, or sums of them, that one holder sends to another.
struct SumLink {
  ActionKind sends = ActionKind::reduce_send;  ///< In which the sender does.
  DeviceId from;
  ActionKind takes = ActionKind::reduce;  ///< In which the receiver waits for it.
  DeviceId to;

  friend auto operator<=>(const SumLink&, const SumLink&) = default;
};

/// What the writer needs of a ParallelPlan; indices are those of the plan.
struct TraceNames {
  std::vector<DeviceSlot> devices;
  std::vector<std::string> stages;                ///< See stage_names.
  std::vector<std::string> groups;                ///< Layer or tied parameter.
  std::vector<std::vector<SumLink>> group_links;  ///< Of its sum, sorted; see kSumHoldersShown.

  friend bool operator==(const TraceNames&, const TraceNames&) = default;
};

/// One end of such a transfer.
struct SumEnd {
  SumLink link;
  bool begins = false;  ///< The event's end is the sender.
};

/// Groups with more holders show no links: everybody sends to every owner.
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
