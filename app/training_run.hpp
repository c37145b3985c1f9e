// What `troupe train` has before it trains: a job that holds together, and the run folder it
// writes. Shared by the head of a job and the reference runs.

#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "app/resuming.hpp"
#include "engine/profiling/profile_run.hpp"
#include "engine/run/run_folder.hpp"
#include "engine/setup/data_identity.hpp"
#include "engine/setup/job_setup.hpp"
#include "engine/setup/resume.hpp"
#include "runtime/job/load_job.hpp"
#include "runtime/observe/console.hpp"
#include "runtime/observe/logger.hpp"
#include "runtime/observe/metrics_endpoint.hpp"
#include "scheduler/layout/layout_reasons.hpp"

namespace troupe::app {

struct Opened {
  job::LoadedJob loaded;
  engine::JobSetup setup;
  engine::DataIdentity data;
  engine::ObtainedProfile profile;
  ParallelPlan plan;
  std::vector<ParallelPlan> later;               ///< That the job changes to while it runs.
  std::vector<scheduler::LayoutReason> reasons;  ///< Of a chosen layout, sums and operators.
  std::string resolved;
  std::string run_id;
  std::int64_t incarnation = 1;       ///< Which head of the run this is.
  std::vector<std::string> warnings;  ///< What of the job has no effect: a line each.
  engine::ResumePoint resume;         ///< Where it goes on.
  std::shared_ptr<observe::MetricsEndpoint> endpoint;  ///< Shows what is recorded; null: none does.
  std::string left_behind;  ///< Whose lock of the run folder was taken over.
  /// Nodes of the run may wait for a head; else, why the job cannot go on where none does.
  bool gathers = false;
  bool saves_only = false;  ///< It then saves what they hold, and ends.
  bool goes_back = false;   ///< To its checkpoint where they hold only a part of a newer step.
  std::int32_t tries = 0;   ///< So often the job began again from where it goes on.
  Status without_nodes = Done{};
};

/// Everything that can be wrong with a job before anything is started or written. `predicted`:
/// plans are wanted, and with them layer costs, measured where no file has them. `checkpoint`: what
/// it goes on from; null: it begins. `saved`: the job file of what it goes on from, also of nodes
/// that wait, whose sums stay where the job leaves them open; empty: it begins.
Result<Opened> open_job(job::LoadedJob loaded, bool predicted, const state::Checkpoint* checkpoint,
                        const std::filesystem::path& saved);

/// The same of a head that only has nodes save what they hold: it opens no data, chooses no layout,
/// and needs no file that the job names, since the machine that had them may be gone. `checkpoint`:
/// the newest one; null: there is none. Errors: as `engine::prepare`.
Result<Opened> open_to_save(job::LoadedJob loaded, const state::Checkpoint* checkpoint);

/// The run folder, and the log that goes to the console and to `train.log` in there.
struct Run {
  std::shared_ptr<engine::RunFolder> folder;
  observe::Logger logger;
  observe::Logger file;  ///< `train.log` alone: for what the console is told in another way.
};

/// Makes the run folder, or goes on with it, and says so first. `name`: of who writes, for the log.
Result<Run> open_run(const Opened& opened, observe::Console& console, const std::string& name);

}  // namespace troupe::app
