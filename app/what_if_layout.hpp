// What `troupe whatif` asks the planner: the job's pipelines as they run now, the change, and both
// configurations on the simulator.

#pragma once

#include <optional>
#include <string>

#include "app/planning.hpp"
#include "scheduler/recovery/what_if.hpp"

namespace troupe::app {

struct WhatIfAnswer {
  scheduler::WhatIfRequest request;
  scheduler::WhatIf change;
  scheduler::RankList lost;     ///< All that were said to be lost, also such without a stage.
  scheduler::RankList spare;    ///< Nodes without a stage that step in for lost ones.
  bool from_templates = false;  ///< Pipelines share nodes, so templates stand for the layout.
  /// One simulated step of either configuration; none where a stage has several devices.
  std::optional<double> step_before_ms, step_after_ms;
  std::string
      instead;         ///< What the planner would choose in place of this layout, and why; or none.
  double copy_ms = 0;  ///< Of the busiest sender, on the predicted network.
};

/// Pipelines whose nodes stay keep their stages; the others take templates. Where the planner would
/// give module groups numbers of replicas of their own, the answer is for the best layout with one
/// number for all, and says so.
///
/// Errors: unavailable: the job's layout or pins leave no layout with one number for all. Others as
/// `engine::check_sources` (of the nodes that are then there), `make_layout`, `make_templates`,
/// `instantiate` and `what_if`.
Result<WhatIfAnswer> answer_what_if(const Planning& planning, const scheduler::RankList& lost,
                                    const scheduler::RankList& joined);

}  // namespace troupe::app
