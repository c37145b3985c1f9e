// When a job saves, what becomes of a save, and how a job that is told to stop saves first. A part
// of the supervisor's actor; every function runs in it.

#pragma once

#include <cstdint>
#include <string>

#include "actors/node/keeper_actor.hpp"
#include "actors/supervisor/supervisor_actor.hpp"

namespace troupe::actors {

/// After a step has finished: saves where it is due.
void save_if_due(SupervisorSelf self);

/// Somebody wants a checkpoint; it is made as soon as the state allows.
void want_save(SupervisorSelf self);

/// Who goes on from a checkpoint: the job, or the command that began it; after an error of the job
/// (exit code 1 to 3) only where it is asked to, else it begins anew.
enum class GoesOn : std::uint8_t { by_itself, same_command, asked };

/// `step 40 is saved: the same command goes on from there (FOLDER)`. REQUIRES: one is.
std::string how_to_go_on(const SupervisorState& state, GoesOn who = GoesOn::same_command);

/// The same of a job that ends by an error of its own, where nothing is saved: why.
std::string what_is_saved(const SupervisorState& state);

/// A device has written its share, or could not.
void share_saved(SupervisorSelf self, const SaveReport& report);

/// The scheduler says what it had learned when this save was ordered.
void learned_for_save(SupervisorSelf self, std::int64_t number, const LearnedCosts& learned);

/// The keeper has completed a checkpoint, or could not.
void checkpoint_kept(SupervisorSelf self, const KeptCheckpoint& kept);

/// Whether the running save waits for what this node is to write.
bool is_awaited_by_save(const SupervisorState& state, NodeId node);

/// A node is gone: a save that is not written will not be whole; another one follows it.
void give_up_save(SupervisorSelf self, const std::string& why);

/// Gives a save up that takes too long, and a stop that does.
void watch_saves(SupervisorSelf self);

/// Whether something is still to be saved before the job may end.
bool saves_at_end(const SupervisorState& state);

/// Begins to end the job: saves what the last finished step left, then ends. `why`: `stopped by
/// SIGTERM at node 2 (host, pid 71)`. `exit_code`: where there is nothing to resume from.
void begin_stop(SupervisorSelf self, const std::string& why, std::int32_t exit_code);

/// The same, but nothing is ordered before `go_on_stopping`: where other things change first.
void decide_stop(SupervisorSelf self, const std::string& why, std::int32_t exit_code);

/// A step has ended, or a save: goes on with what `begin_stop` began.
void go_on_stopping(SupervisorSelf self);

/// Ends the job that is to stop with what is saved by now.
void end_stopped(SupervisorSelf self);

}  // namespace troupe::actors
