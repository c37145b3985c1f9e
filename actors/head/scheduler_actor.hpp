// Plans iterations one after the other while earlier ones run, and lets nodes decode ahead.

#pragma once

#include <map>
#include <optional>
#include <vector>

#include "actors/link/protocol.hpp"
#include "engine/iteration/batch_planner.hpp"
#include "engine/profiling/profile_check.hpp"
#include "engine/setup/job_setup.hpp"

namespace troupe::actors {

struct SchedulerState {
  const engine::JobSetup* setup = nullptr;
  SupervisorActor supervisor;
  data::Epochs epochs;
  Configuration configuration;
  std::vector<NodeActor> nodes;
  std::size_t reporters = 0;  ///< Nodes with devices: so many report on every batch.
  std::optional<engine::BatchPlanner> planner;
  std::optional<engine::RunCheck> check;  ///< Of the profile.
  std::string began;                      ///< When the run did.
  bool has_templates = false;             ///< They were sent to the supervisor.
  bool is_asked_layout = false;           ///< The next one: they are to be made anew.
  std::vector<DealNote> deals;            ///< Of before, for the first layout.
  LearnedCosts learned;                   ///< The same.
  engine::NodeTimes times;                ///< Of nodes that are not as fast as plans take them for.
  std::int64_t next_measure = 0;          ///< Batches below it are being measured, or are.
  std::int64_t next_order = 0;            ///< Batches below it are being decoded, or are.
  std::int64_t next_plan = 0;             ///< Batches below it have been planned.
  std::int64_t wanted = 0;  ///< Batches below it have been asked for by the supervisor.
  std::map<std::int64_t, std::vector<engine::BatchReport>> lengths;  ///< Of who has measured.
  std::map<std::int64_t, std::vector<engine::BatchReport>> reports;  ///< Of who has decoded.

  static inline const char* name = "scheduler";
};

/// REQUIRES: spawned detached: its thread goes to the background (`data::run_in_background`).
/// `setup` outlives the actor. `before`: what was trained when the job begins,
/// and the order of its data.
SchedulerActor::behavior_type scheduler(SchedulerActor::stateful_pointer<SchedulerState> self,
                                        const engine::JobSetup* setup, JobProgress before,
                                        SupervisorActor supervisor);

}  // namespace troupe::actors
