// Writes everything a run leaves behind. Detached: file writes block.

#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "actors/link/protocol.hpp"
#include "engine/iteration/plan_summary.hpp"
#include "engine/run/run_folder.hpp"
#include "engine/setup/job_setup.hpp"
#include "runtime/observe/console.hpp"
#include "runtime/observe/logger.hpp"
#include "runtime/observe/run_trace.hpp"
#include "runtime/observe/step_reporter.hpp"
#include "runtime/vocabulary/head_memory.hpp"
#include "transport/transport.hpp"

namespace troupe::actors {

/// A finished or skipped step.
struct StepRecord {
  observe::StepMetrics metrics;
  std::vector<std::string> ids;  ///< In training order; empty for a skipped step.
  std::vector<std::string> nonfinite_samples;
  std::vector<observe::TraceEvent> events;
  engine::Prediction prediction;
  observers::Tally observed;
  std::shared_ptr<const HeadMemory> for_next_head;  ///< To be written with it; null: nothing is.
};

/// How the lengths of an epoch's samples were come by. A batch that is planned anew counts again.
struct LengthCount {
  std::int64_t epoch = 0;
  std::int64_t samples = 0;
  std::int64_t indexed = 0;  ///< Of them, those an index knew.
};

struct RecorderState {
  std::optional<engine::RunFolder> folder;
  std::optional<observe::RunTrace> trace;  ///< Since the first configuration.
  std::optional<observe::StepReporter> reporter;
  observe::Logger logger;
  transport::Transport* transport = nullptr;  ///< The head's.
  SupervisorActor supervisor;
  ParallelPlan plan;
  engine::StageTimes stage_times;
  observers::Tally observed;           ///< So far.
  LengthCount lengths;                 ///< Of the epoch of the newest batch.
  std::set<std::string> length_notes;  ///< Told: nodes of one machine find the same.
  std::set<std::string> no_exchange;   ///< What kept phases from an exchange and was told: keys.
  std::int64_t trace_origin_ns = 0;
  std::int64_t change_ns = 0;  ///< When the last event that has phases began.
  bool failed = false;
  bool lacks_room = false;         ///< Lines wait for the disk.
  bool is_sync_refused = false;    ///< That it is was said.
  bool is_memory_refused = false;  ///< The same of learned.json.
  bool traces_end = false;         ///< What there is of them stays.

  static inline const char* name = "recorder";
};

/// `console` and `transport` outlive the actor.
RecorderActor::behavior_type recorder(RecorderActor::stateful_pointer<RecorderState> self,
                                      std::shared_ptr<engine::RunFolder> folder,
                                      observe::Console* console, observe::Logger logger,
                                      observe::TrainingGoal goal, transport::Transport* transport,
                                      SupervisorActor supervisor);

}  // namespace troupe::actors
