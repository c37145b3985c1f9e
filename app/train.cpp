// `troupe train`: the head of a job, or one of the reference runs.

#include <CLI/CLI.hpp>
#include <csignal>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "app/commands.hpp"
#include "app/doors.hpp"
#include "app/held_folder.hpp"
#include "app/read_limits.hpp"
#include "app/resuming.hpp"
#include "app/run_argument.hpp"
#include "app/run_record.hpp"
#include "app/signals.hpp"
#include "app/stalled_read.hpp"
#include "app/taking_over.hpp"
#include "app/terminal.hpp"
#include "app/train_head.hpp"
#include "app/train_reference.hpp"
#include "app/training_run.hpp"
#include "engine/execution/device_place.hpp"
#include "engine/run/continued_run.hpp"
#include "engine/run/run_lock.hpp"
#include "engine/setup/initial_layers.hpp"
#include "engine/setup/kept_lengths.hpp"
#include "runtime/files/look_up.hpp"
#include "runtime/job/load_job.hpp"

namespace troupe::app {

namespace {

struct Options {
  JobArguments job;
  bool reference = false;
  std::string microbatches;
  bool saves_only = false;  ///< Saves what nodes hold whose head was lost, and ends.
  std::string node_job;     ///< Of the node that started it for that: its own job file.
  std::int32_t tries = 0;   ///< So often it has begun again from the same checkpoint by itself.
  std::string because;      ///< Why.
  ResumeWish wish;
};

/// What is for this process alone, until the job ends.
struct Reserved {
  std::shared_ptr<engine::RunLock> run;
  std::shared_ptr<engine::RunLock> checkpoints;  ///< Null: they lie in the run folder.

  void release() const {
    run->release();
    if (checkpoints) checkpoints->release();
  }
};

/// Another head took the run over while this one stood still: it ends before it writes anything
/// more there. On a thread of its own, which lets go of the lock.
void leave_to_other_head(const Error& why) {
  std::thread([why] {
    leave_at_latest(kResumable, kLastWordsTime);  // Nobody may read this.
    report(why);
    leave(kResumable);
  }).detach();
}

/// The run folder, and that of the checkpoints where it is another one: what a job that is gone
/// left half-written there is cleared away, and of one that runs it would be lost.
Result<Reserved> reserve(const job::Job& job) {
  auto lock = engine::RunLock::take(job.job.run_dir, {}, engine::kLockSilence, leave_to_other_head);
  if (!lock.ok()) {
    if (lock.error().code != Errc::unavailable) return std::move(lock).error();
    return told_of_holder(std::move(lock).error(), job.job.run_dir);
  }
  if (auto fits = engine::RunFolder::check(job.job.run_dir); !fits.ok())
    return std::move(fits).error();
  Reserved reserved{std::make_shared<engine::RunLock>(std::move(lock).value()), nullptr};
  if (!engine::lies_in(job.checkpoint_dir(), job.job.run_dir)) {
    auto checkpoints = engine::lock_checkpoints(job.checkpoint_dir(), leave_to_other_head);
    if (!checkpoints.ok()) return std::move(checkpoints).error();
    reserved.checkpoints = std::move(checkpoints).value();
  }
  before_leaving([reserved] { reserved.release(); });
  return reserved;
}

/// Whether nodes of this run may wait for a head, and this is one.
bool may_gather(const Options& options, const job::Job& job) {
  if (options.reference) return false;
  return options.saves_only ? may_save_for_nodes(job, options.wish)
                            : may_have_waiting_nodes(job, options.wish);
}

/// Of a head that would only save: there is nobody whose state it could.
Error nothing_to_save() {
  return {Errc::unavailable, "no nodes wait that hold what is not saved", "--save-and-end",
          "start the job again: it goes on from its checkpoint"};
}

/// What is refused at once comes first; then what takes time; the run folder is touched last.
int train_reserved(const Options& options, job::LoadedJob loaded, const engine::RunLock& lock,
                   const ChosenCheckpoint& chosen, std::unique_ptr<EndOnStalledRead> reads,
                   std::unique_ptr<EndOnSignal> guard) {
  // Nodes elsewhere look for their devices themselves.
  const job::Cluster& wanted = loaded.job.cluster;
  auto place = options.reference || wanted.local_nodes > 0
                   ? engine::usable_place(wanted.device, 0, loaded.job.train.deterministic)
                   : Result<c10::Device>(c10::Device(c10::kCPU));
  if (!place.ok()) return report(place.error());
  std::optional<Doors> doors;
  if (!options.reference) {
    auto opened = open_doors(loaded.job);
    if (!opened.ok()) return report(opened.error());
    doors.emplace(std::move(opened).value());
  }
  auto endpoint = open_metrics(loaded.job.observe);
  if (!endpoint.ok()) return report(endpoint.error());
  const bool gathers = may_gather(options, loaded.job);
  if (options.saves_only && !gathers) return report(nothing_to_save());
  const auto saved = chosen.checkpoint ? chosen.checkpoint->folder() / state::kCheckpointJobFile
                     : gathers         ? loaded.job.job.run_dir / state::kCheckpointJobFile
                                       : std::filesystem::path();
  auto opened = options.saves_only ? open_to_save(std::move(loaded), chosen.checkpoint.get())
                                   : open_job(std::move(loaded),
                                              !options.reference || !options.microbatches.empty(),
                                              chosen.checkpoint.get(), saved);
  if (!opened.ok()) return report(opened.error());
  const auto& run_dir = opened.value().setup.job.job.run_dir;
  const bool is_continued = gathers || chosen.checkpoint != nullptr;
  opened.value().run_id = run_id(run_dir, is_continued);
  opened.value().incarnation = next_incarnation(run_dir, is_continued);
  opened.value().gathers = gathers;
  opened.value().tries = options.tries;
  opened.value().resume.why = options.because;
  opened.value().saves_only = options.saves_only;
  opened.value().goes_back = goes_back(opened.value().setup.job, chosen.checkpoint != nullptr);
  // From here on the nodes measure; a reference reads everything, so that it can tell a wrong
  // index.
  for (auto& note : engine::release_lengths(opened.value().setup))
    opened.value().warnings.push_back(std::move(note));
  // Where whoever held it has ended that would cost a long run much time for nothing.
  if (lock.may_wake())
    if (auto own = engine::renew_open_files(run_dir); !own.ok()) return report(own.error());
  opened.value().without_nodes = options.saves_only ? nothing_to_save() : chosen.status;
  opened.value().left_behind = lock.left_behind();
  opened.value().endpoint = std::move(endpoint).value();
  opened.value().warnings.insert(opened.value().warnings.begin(), chosen.warnings.begin(),
                                 chosen.warnings.end());
  if (options.reference) {
    guard.reset();
    opened.value().setup.layers.device = place.value();
    return train_by_reference(opened.value(), options.microbatches);
  }
  reads.reset();  // From here on the nodes read, and say so themselves.
  return train_as_head(std::move(opened).value(), std::move(*doors), std::move(guard));
}

/// The job of the command line: a file, or what the run that goes on wrote of its own.
Result<job::LoadedJob> load(Options& options) {
  ResumeWish& wish = options.wish;
  // `--resume job.toml`: the word is the job's.
  if (options.job.file.empty() && files::is_file(wish.run))
    options.job.file = std::exchange(wish.run, "latest");
  if (wish.fresh && wish.resume)
    return usage_error("--fresh and --resume ask for different things", "leave one of them out");
  auto overrides = options.job.all();
  // Nor are values: `--resume train.steps=40`, and `--resume RUN train.steps=40` without a job.
  const auto is_value = [&](const std::string& word) {
    return word.find('=') != std::string::npos && !files::is_there(word);
  };
  if (is_value(wish.run)) overrides.insert(overrides.begin(), std::exchange(wish.run, "latest"));
  if (wish.resume && is_value(options.job.file))
    overrides.insert(overrides.begin(), std::exchange(options.job.file, ""));
  if (const std::string run = wish.named_run(); !run.empty()) {
    if (auto there = check_run_folder(run); !there.ok()) return std::move(there).error();
    if (options.job.file.empty()) options.job.file = run + "/resolved.toml";
    overrides.push_back("job.run_dir=" + run);
  }
  if (options.job.file.empty())
    return usage_error("no job file", "troupe train JOB.toml, or troupe train --resume RUN");
  if (options.saves_only) return load_to_save(options.job.file, options.node_job, overrides);
  return job::load_job(options.job.file, overrides);
}

Result<job::LoadedJob> load_in_time(Options& options) {
  auto words = options.job.all();
  // Before it is known which of them are values.
  words.insert(words.begin(), {options.wish.run, options.job.file});
  const EndOnStalledRead reads(job_file_limits(words), kOfCommandLine);
  return load(options);
}

int train(Options options) {
  block_signals({SIGCHLD, SIGUSR1});
  auto guard = std::make_unique<EndOnSignal>("before the job started");
  auto loaded = load_in_time(options);
  if (!loaded.ok()) return report(loaded.error());
  if (!options.reference && !options.microbatches.empty())
    return report(usage_error("--microbatches goes with --reference", "add --reference"));
  auto reads = std::make_unique<EndOnStalledRead>(loaded.value().job);
  auto lock = reserve(loaded.value().job);
  if (!lock.ok()) return report(lock.error());
  auto chosen = choose_checkpoint(loaded.value().job, options.wish);
  if (!chosen.ok()) {
    // Nodes that kept their state make up for it.
    if (!may_gather(options, loaded.value().job)) return report(chosen.error());
    ChosenCheckpoint none;
    none.status = chosen.error();
    chosen = std::move(none);
  }
  const int code = train_reserved(options, std::move(loaded).value(), *lock.value().run,
                                  chosen.value(), std::move(reads), std::move(guard));
  lock.value().release();
  return code;
}

}  // namespace

void add_train(Commands& commands) {
  auto options = std::make_shared<Options>();
  auto* command = commands.add("train", "Run a job; starts its local node processes itself",
                               [options, &root = commands.root] {
                                 options->wish.resume =
                                     !root.get_subcommand("train")->get_option("--resume")->empty();
                                 return train(*options);
                               });
  options->job.add_to(*command);
  command->get_option("JOB")->required(false);
  command
      ->add_option("--resume", options->wish.run,
                   "Go on from the newest checkpoint: of this run, or of the job's own")
      ->type_name("[RUN|latest]")
      ->expected(0, 1);
  command->add_flag("--fresh", options->wish.fresh,
                    "Begin anew where a run was cut off; it is moved aside");
  command->add_flag("--reference", options->reference,
                    "One process, one sample at a time: the oracle");
  command->add_flag("--save-and-end", options->saves_only)->group("");  // Of a node without a head.
  command->add_option("--job-of-node", options->node_job)->group("");
  command->add_option("--again", options->tries)->group("");  // Of a head that begins again.
  command->add_option("--because", options->because)->group("");
  command
      ->add_option("--microbatches", options->microbatches,
                   "With --reference: `plan`, or a run folder whose plans are replayed")
      ->type_name("plan|RUN");
}

}  // namespace troupe::app
