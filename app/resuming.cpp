#include "app/resuming.hpp"

#include <iterator>
#include <utility>

#include "app/terminal.hpp"
#include "engine/iteration/data_warnings.hpp"
#include "engine/setup/initial_layers.hpp"
#include "engine/setup/job_setup.hpp"
#include "engine/setup/resume.hpp"
#include "runtime/observe/run_facts.hpp"
#include "runtime/state/incomplete_save.hpp"

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
  auto all = state::checkpoints_in(job.checkpoint_dir());
  for (const auto& part : state::incomplete_saves_in(job.checkpoint_dir())) all.insert(part);
  if (all.empty() || engine::lies_in(job.checkpoint_dir(), job.job.run_dir)) return Done{};
  return Error{Errc::invalid_argument,
               "this job would begin anew, and a run before has left checkpoints there, the newest "
               "of step " +
                   std::to_string(all.rbegin()->first),
               "checkpoint.dir = " + job.checkpoint_dir().string(),
               "go on from them with --resume, lay them aside with --fresh, or give the job "
               "another checkpoint.dir"};
}

/// A checkpoint of another job among this one's is passed over for the newest that is its own.
/// Where none is, it is the job that has changed, and who goes on from the newest tells how.
void pass_over_others(const job::Job& job, state::FoundCheckpoint& found) {
  const auto setup = engine::prepare(job);
  if (!setup.ok()) return;
  const auto fits = engine::check_model(found.newest->manifest(), setup.value().parameters);
  if (fits.ok()) return;
  const auto all = state::checkpoints_in(job.checkpoint_dir());
  const auto newest = all.find(found.newest->manifest().progress.step);
  for (auto older = std::make_reverse_iterator(newest); older != all.rend(); ++older) {
    auto opened = state::Checkpoint::open(older->second);
    if (!opened.ok() || opened.value().manifest().progress.step != older->first) continue;
    if (!engine::check_model(opened.value().manifest(), setup.value().parameters).ok()) continue;
    if (!opened.value().verify().ok()) continue;
    Error other = fits.error();
    other.where = found.newest->folder().string() + ", " + other.where;
    found.passed_over.push_back(std::move(other));
    found.newest = std::make_unique<state::Checkpoint>(std::move(opened).value());
    return;
  }
}

/// Nothing goes on from it, and who begins anew is to say so: the part would be given up.
Error only_a_part(Error why) {
  why.message = "no checkpoint of this run is whole: " + why.message;
  why.fix += "; else begin anew with --fresh, which keeps this run beside it";
  return why;
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
  auto joined = state::join_incomplete_saves(folder);
  if (!joined.ok())
    chosen.warnings.push_back(engine::warning_text(joined.error()));
  else if (const auto& whole = joined.value())
    chosen.warnings.push_back("incomplete saves were put together: " + whole->string());
  auto found = state::find_checkpoint(folder);
  if (found.newest) pass_over_others(job, found);
  if (!found.newest && found.incomplete) return only_a_part(*std::move(found.incomplete));
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
  if (found.incomplete)
    chosen.warnings.push_back(engine::warning_text(*found.incomplete) +
                              "; this one is laid aside (superseded): the job " +
                              "goes on from step " +
                              std::to_string(found.newest->manifest().progress.step));
  for (const Error& why : found.passed_over)
    chosen.warnings.push_back(engine::warning_text(why) + "; the checkpoint before it is taken");
  chosen.checkpoint = std::move(found.newest);
  return chosen;
}

}  // namespace troupe::app
