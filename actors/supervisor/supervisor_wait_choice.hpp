// Whether a job that has lost nodes goes on at once or waits for one that is on its way, by what
// the scheduler predicts of both (scheduler/recovery/wait_choice.hpp). Decides and says so; the
// wait itself is in supervisor_wait.hpp. A part of the supervisor's actor; every function runs in
// it.

#pragma once

#include <optional>
#include <set>
#include <string>

#include "actors/supervisor/layout_change.hpp"
#include "actors/supervisor/supervisor_state.hpp"

namespace troupe::actors {

/// What is predicted, and what follows.
struct WaitVerdict {
  std::optional<ChosenWait> wait;  ///< None: the job goes on.
  std::string words;               ///< A clause for the log, from its semicolon on; may be empty.
};

/// Of a job that could go on as `regrouping` has it, which was planned for `nodes`. It waits for
/// the node that was welcomed first of those that are no later than others were, where that loses
/// fewer samples. It does not where nothing can be predicted, no step would follow, somebody is to
/// leave, it could not go on before, or the node is not there within `recovery.wait_for_nodes_s` of
/// the loss.
WaitVerdict weigh_wait(const SupervisorState& state, const Regrouping& regrouping,
                       const std::set<NodeId>& nodes, Time now);

/// Why a wait that was chosen is over, a clause: somebody came, the node was lost, it takes longer
/// than others did, or it pays no longer. None: it goes on. REQUIRES: such a wait.
std::optional<std::string> end_of_wait(const SupervisorState& state, Time now);

}  // namespace troupe::actors
