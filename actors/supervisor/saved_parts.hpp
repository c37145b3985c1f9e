// What a save of a running job holds and lacks: its manifest and its name, whether what is left of
// a model is worth one, and what is said of one that is incomplete. A part of the supervisor's
// actor; every function runs in it.

#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "actors/supervisor/supervisor_save.hpp"
#include "actors/supervisor/supervisor_state.hpp"

namespace troupe::actors {

/// Of all checkpoints of the job, absolute.
std::filesystem::path folder_of(const SupervisorState& state);

/// What the job does with this state, which is left: `worth_saving` of its values.
WorthSaving worth_saving(const SupervisorState& state, const StatePlacement& left);

/// A job stops whose model may not have come whole: what nodes alone had that were lost while it
/// was collected is in no save. Returns whether what is left is worth one; else says why there is
/// none.
bool leave_out_lost_holders(SupervisorState& state);

/// Shards of the present state that nobody holds, and who did.
std::vector<state::MissingShard> missing_shards(const SupervisorState& state);

/// REQUIRES: every writer has said that it has written its share.
state::CheckpointManifest manifest_of(const SupervisorState& state, const Save& save);

/// The folder that it becomes: `step-N`, or that of an incomplete save.
std::filesystem::path name_of(const SupervisorState& state, const Save& save);

/// An incomplete save is there, `event` with its times: the log and events.jsonl tell what it
/// lacks.
void note_part_saved(SupervisorSelf self, const Save& save, observe::RunEvent event);

/// How to go on where an incomplete save is all that there is of the last steps: `how_to_go_on`
/// where a checkpoint is whole, else what would be enough.
std::string way_on_from_part(const SupervisorState& state, GoesOn who);

}  // namespace troupe::actors
