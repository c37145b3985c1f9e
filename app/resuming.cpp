#include "app/resuming.hpp"

#include "app/terminal.hpp"
#include "engine/iteration/data_warnings.hpp"
#include "runtime/observe/run_facts.hpp"

namespace troupe::app {

namespace {

/// A run that began and was not ended on purpose.
bool is_unfinished(const std::filesystem::path& run) {
  const auto facts = observe::read_run_facts(run);
  return facts.ok() && (!facts.value().end || facts.value().end->exit_code == kResumable);
}

}  // namespace

Result<ChosenCheckpoint> choose_checkpoint(const job::Job& job, const ResumeWish& wish) {
  ChosenCheckpoint chosen;
  if (wish.fresh || (!wish.resume && !is_unfinished(job.job.run_dir))) return chosen;
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
