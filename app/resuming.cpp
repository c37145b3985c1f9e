#include "app/resuming.hpp"

#include "app/terminal.hpp"
#include "engine/iteration/data_warnings.hpp"
#include "engine/setup/initial_layers.hpp"
#include "runtime/observe/run_facts.hpp"

namespace troupe::app {

namespace {

/// A run that began and was not ended on purpose.
bool is_unfinished(const std::filesystem::path& run) {
  const auto facts = observe::read_run_facts(run);
  return facts.ok() && (!facts.value().end || facts.value().end->exit_code == kResumable);
}

/// A job that begins would lay aside what it never wrote, where its checkpoints do not lie in its
/// run folder.
Status check_shared_folder(const job::Job& job) {
  const auto all = state::checkpoints_in(job.checkpoint_dir());
  if (all.empty() || engine::lies_in(job.checkpoint_dir(), job.job.run_dir)) return Done{};
  return Error{Errc::invalid_argument,
               "this job would begin anew, and a run before has left checkpoints there, the newest "
               "of step " +
                   std::to_string(all.rbegin()->first),
               "checkpoint.dir = " + job.checkpoint_dir().string(),
               "go on from them with --resume, lay them aside with --fresh, or give the job "
               "another checkpoint.dir"};
}

}  // namespace

Result<ChosenCheckpoint> choose_checkpoint(const job::Job& job, const ResumeWish& wish) {
  ChosenCheckpoint chosen;
  if (wish.fresh) return chosen;
  if (!wish.resume && !is_unfinished(job.job.run_dir)) {
    if (auto fits = check_shared_folder(job); !fits.ok()) return std::move(fits).error();
    return chosen;
  }
  const auto folder = job.checkpoint_dir();
  auto found = state::find_checkpoint(folder);
  if (!found.newest && !found.passed_over.empty()) {
    Error none = found.passed_over.front();
    none.message = "no checkpoint of this run is whole; the newest: " + none.message;
    none.fix = "begin anew with --fresh, which keeps this run beside it";
    none.code = Errc::bad_data;
    return none;
  }
  if (!found.newest && wish.resume)
    return Error{Errc::not_found, "there is no checkpoint to go on from", folder.string(),
                 "name the run with --resume RUN, or leave --resume out to begin"};
  for (const Error& why : found.passed_over)
    chosen.warnings.push_back(engine::warning_text(why) + "; the checkpoint before it is taken");
  chosen.checkpoint = std::move(found.newest);
  return chosen;
}

}  // namespace troupe::app
