// What the supervisor says and writes about nodes and steps. Pure functions of its state.

#pragma once

#include <string>
#include <vector>

#include "actors/supervisor/supervisor_state.hpp"

namespace troupe::actors {

/// `node 2 (host, pid 71)`.
std::string describe(const Membership& members, NodeId node);

/// Who joined, who has a place but is not ready, and who is missing, for a job whose nodes did not
/// all come in time.
std::string roll_call(const Membership& members);

/// Nodes that have a place and open what they work with; empty: none does.
std::string still_opening(const Membership& members);

/// Why joining took too long, with the roll call. `listen`: where nodes of other machines join;
/// empty where the system chose the port. `all_local`: the head started every node itself.
/// `listen`: where they join; `key_file`: the job's own.
Error late_error(const Membership& members, const std::string& listen, const std::string& key_file,
                 bool all_local);

/// Why a layout did not come up in time: `late` are the nodes that it waits for.
Error slow_set_up(const SupervisorState& state, const std::vector<NodeId>& late, Time now);

/// What a device has been at, and for how long.
std::string work_text(const KnownWork& known, Time now);

/// The same of all that a node said, behind `; `; empty: it said of none.
std::string long_work_text(const SupervisorState& state, NodeId node, Time now);

/// What a job waits for whose running step takes very long.
std::string stall_text(const SupervisorState& state, Time now);

/// Why a job ends whose running step never does.
Error stalled_error(const SupervisorState& state, Time now);

/// What came before all turned over: connecting, for as long as the slowest node took; then copies.
void add_copies(const LayoutChange& change, observe::RunEvent& event);

/// Of a step, while it did not wait for its plan or its samples. 0: it took no time.
double samples_per_s(const observe::StepMetrics& metrics);

/// What a change of layout brought and how long it took, a line for the log.
std::string change_text(const SupervisorState& state, Time now);

/// The same for events.jsonl.
observe::RunEvent change_event(const SupervisorState& state, Time now);

/// That a job goes on from a checkpoint, for events.jsonl.
observe::RunEvent resumed_event(const SupervisorState& state);

/// What a node hears that gets this place.
NodeWelcome welcome_to(const SupervisorState& state, NodeId node);

double milliseconds_between(Time begin, Time end);

/// Metrics and trace of a step that finished `now`. REQUIRES: its outcome is known.
StepRecord make_record(const SupervisorState& state, const RunningStep& step, Time now);

}  // namespace troupe::actors
