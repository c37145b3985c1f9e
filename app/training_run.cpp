#include "app/training_run.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "app/job_problems.hpp"
#include "app/run_record.hpp"
#include "app/terminal.hpp"
#include "engine/execution/call_facts.hpp"
#include "engine/iteration/data_warnings.hpp"
#include "engine/layout/choose_layout.hpp"
#include "engine/layout/operator_rule.hpp"
#include "engine/layout/resolve_sums.hpp"
#include "engine/profiling/nominal_profile.hpp"
#include "engine/run/continued_run.hpp"
#include "engine/setup/initial_layers.hpp"
#include "engine/setup/kept_lengths.hpp"
#include "engine/state/state_memory.hpp"
#include "runtime/files/look_up.hpp"
#include "runtime/state/checkpoint_keeping.hpp"
#include "runtime/vocabulary/host_port.hpp"

namespace troupe::app {

namespace {

/// For measuring layers at the start of a job; `troupe profile` takes longer and is more exact.
constexpr double kProfileSeconds = 5;

/// Layer costs that plans are predicted with: a file, or measured now, which takes some seconds.
Result<engine::ObtainedProfile> obtain_costs(engine::JobSetup& setup) {
  observe::Console console(observe::detect_console(1));
  engine::ProfileOptions options;
  options.budget_s = kProfileSeconds;
  bool is_told = false;
  options.on_progress = [&](const std::string& kind, double share) {
    if (console.options().terminal)
      console.status("measuring " + kind + " (" + std::to_string(std::lround(100 * share)) + " %)");
    else if (!is_told)  // A log that says nothing for so long looks like a job that hangs.
      console.line("measuring the model's layers first; the times are kept for the next job");
    is_told = true;
  };
  auto obtained = engine::use_profile(setup, options);
  if (console.options().terminal) console.status("");
  return obtained;
}

/// What the folder records, Prometheus can ask for.
void show_figures(const Opened& opened, engine::RunFolder& folder, const observe::Logger& log) {
  folder.show_at(opened.endpoint);
  if (!opened.resume.is_start()) {
    std::error_code unknown;
    const auto saved =
        std::filesystem::last_write_time(opened.resume.folder / "manifest.json", unknown);
    using Time = observe::MetricsEndpoint::Time;
    if (!unknown)
      opened.endpoint->show_checkpoint(
          std::chrono::time_point_cast<Time::duration>(std::chrono::file_clock::to_sys(saved)));
  }
  HostPort address = parse_host_port(opened.setup.job.observe.metrics_listen).value();
  address.port = opened.endpoint->port();
  log.info("figures for Prometheus: http://" + address.text() + "/metrics");
}

/// What its layout settles of sums that a job leaves open, by the profile at hand.
Result<scheduler::LayoutReason> choose_open_sums(engine::JobSetup& setup,
                                                 const scheduler::CallFacts& facts,
                                                 const ParallelPlan& by_messages) {
  const auto profile = engine::profile_at_hand(setup);
  if (!profile.ok()) return profile.error();
  return engine::choose_sums(setup, facts, by_messages,
                             engine::prediction_of(setup, profile.value().speeds));
}

/// Keeps what was chosen of sums that a job leaves open, in all that is kept of the job.
void keep_sums(Opened& opened, const engine::JobSetup& setup, job::LoadedJob& loaded,
               scheduler::LayoutReason sums) {
  loaded.job.cluster.sums = setup.job.cluster.sums;
  loaded.origins["cluster.sums"].where += ": auto";
  opened.reasons.push_back(std::move(sums));
}

/// Settles, and keeps, what a job leaves open of its rows.
void settle_open_rows(Opened& opened, engine::JobSetup& setup, job::LoadedJob& loaded) {
  if (loaded.job.cluster.rows != "auto") return;
  opened.reasons.push_back(engine::settle_rows(setup, engine::call_facts(loaded.job.cluster)));
  loaded.job.cluster.rows = setup.job.cluster.rows;
  loaded.origins["cluster.rows"].where += ": auto";
}

/// Where the job goes on.
Result<engine::ResumePoint> find_resume(const state::Checkpoint& checkpoint,
                                        const engine::JobSetup& setup,
                                        const engine::DataIdentity& identity,
                                        const data::Dataset& dataset) {
  auto resume =
      engine::resume_from(checkpoint, setup, identity, [&](std::span<const std::int64_t> records) {
        return engine::hash_of_first(dataset, records);
      });
  if (!resume.ok()) return resume;
  auto& generation = resume.value().progress.generation;
  generation = std::max(generation, engine::newest_generation(setup.job.job.run_dir));
  return resume;
}

/// What of the job has no effect.
std::vector<std::string> job_warnings(const job::LoadedJob& loaded, const data::Dataset& dataset) {
  std::vector<std::string> warnings;
  for (const auto& warning : loaded.warnings) warnings.push_back(engine::warning_text(warning));
  for (const auto& warning : engine::data_warnings(loaded, dataset))
    warnings.push_back(engine::warning_text(warning));
  return warnings;
}

/// Of a job that begins. What `init` does not need is a warning.
Status check_init(const engine::JobSetup& setup, std::vector<std::string>& warnings) {
  if (auto problems = engine::init_problems(setup); !problems.empty())
    return std::move(problems.front());
  for (auto& line : engine::unused_init(setup)) warnings.push_back(line);
  return Done{};
}

/// The layouts that come later. Errors too: the state of one, or of the first, is too large, or no
/// kind of stage runs a stage of it.
Result<std::vector<ParallelPlan>> fitting_layouts(const engine::JobSetup& setup,
                                                  const ParallelPlan& first) {
  auto later = engine::later_layouts(setup);
  if (!later.ok()) return later;
  auto all = later.value();
  all.push_back(first);
  if (auto run = check_kinds(setup, all); !run.ok()) return std::move(run).error();
  const Bytes memory = engine::memory_at_hand(setup.job.cluster);
  for (const ParallelPlan& plan : all)
    if (auto fits = engine::check_state_memory(setup.job, plan, memory); !fits.ok())
      return std::move(fits).error();
  return later;
}

}  // namespace

Result<Opened> open_job(job::LoadedJob loaded, bool predicted, const state::Checkpoint* checkpoint,
                        const std::filesystem::path& saved) {
  Opened opened;
  // What a job goes on from has all values.
  if (checkpoint == nullptr)
    if (auto found = engine::resolve_init(loaded.job); !found.ok()) return std::move(found).error();
  auto setup = engine::prepare(loaded.job);
  if (!setup.ok()) return std::move(setup).error();
  if (auto known = check_kinds(setup.value(), {}); !known.ok()) return std::move(known).error();
  std::optional<scheduler::CallFacts> open_sums;
  std::optional<scheduler::LayoutReason> sums;
  if (engine::leaves_sums_open(loaded.job)) {
    open_sums = engine::call_facts(loaded.job.cluster);
    sums = engine::settle_sums(setup.value(), *open_sums,
                               saved.empty() ? "" : engine::saved_sums(saved));
  }
  auto dataset = data::Dataset::open(setup.value().data);
  if (!dataset.ok()) return std::move(dataset).error();
  opened.data = engine::identify(dataset.value(), setup.value().data.seed);
  if (checkpoint != nullptr) {
    auto resume = find_resume(*checkpoint, setup.value(), opened.data, dataset.value());
    if (!resume.ok()) return std::move(resume).error();
    opened.resume = std::move(resume).value();
  }
  opened.warnings = job_warnings(loaded, dataset.value());
  if (checkpoint == nullptr)
    if (auto begins = check_init(setup.value(), opened.warnings); !begins.ok())
      return std::move(begins).error();
  engine::keep_lengths(setup.value());
  // A model that fits nowhere is refused before its layers are measured.
  auto layout = engine::choose_layout(setup.value());
  if (!layout.ok()) return std::move(layout).error();
  bool is_final = !predicted;  // Measured times may ask for another one, and so may calls to NCCL.
  if (open_sums && !sums) {
    auto chosen = choose_open_sums(setup.value(), *open_sums, layout.value().plan);
    if (!chosen.ok()) return std::move(chosen).error();
    sums = std::move(chosen).value();
    is_final = is_final && !is_by_nccl(setup.value().model.sums);
  }
  auto later = fitting_layouts(setup.value(), layout.value().plan);
  if (!later.ok()) return std::move(later).error();
  opened.later = std::move(later).value();
  if (predicted) {
    auto profile = obtain_costs(setup.value());
    if (!profile.ok()) return std::move(profile).error();
    opened.profile = std::move(profile).value();
  }
  if (!is_final) layout = engine::choose_layout(setup.value());
  if (!layout.ok()) return std::move(layout).error();
  opened.plan = std::move(layout.value().plan);
  if (auto run = check_kinds(setup.value(), {&opened.plan, 1}); !run.ok())
    return std::move(run).error();
  opened.reasons = std::move(layout.value().reasons);
  if (sums) keep_sums(opened, setup.value(), loaded, std::move(*sums));
  settle_open_rows(opened, setup.value(), loaded);
  if (auto rule = engine::operator_rule(loaded.job)) opened.reasons.push_back(std::move(*rule));
  opened.resolved = job::to_toml(loaded);
  opened.setup = std::move(setup).value();
  opened.loaded = std::move(loaded);
  return opened;
}

Result<Opened> open_to_save(job::LoadedJob loaded, const state::Checkpoint* checkpoint) {
  Opened opened;
  auto setup = engine::prepare(loaded.job);
  if (!setup.ok()) return std::move(setup).error();
  auto later = engine::later_layouts(setup.value());
  if (!later.ok()) return std::move(later).error();
  opened.later = std::move(later).value();
  if (checkpoint != nullptr) {
    opened.resume.folder = std::filesystem::absolute(checkpoint->folder());
    opened.resume.progress = checkpoint->manifest().progress;
  }
  // What was learned of costs, over a profile's times, is saved with the state. Not worth
  // measuring.
  const auto& named = loaded.job.scheduler.profile;
  if (files::is_there(named.empty() ? engine::default_profile_path(setup.value()) : named))
    if (auto profile = obtain_costs(setup.value()); profile.ok())
      opened.profile = std::move(profile).value();
  opened.resolved = job::to_toml(loaded);
  opened.setup = std::move(setup).value();
  opened.loaded = std::move(loaded);
  return opened;
}

Result<Run> open_run(const Opened& opened, observe::Console& console, const std::string& name) {
  const job::Job& job = opened.setup.job;
  const JobProgress& progress = opened.resume.progress;
  const DataOrder order = engine::data_order(job, opened.data, opened.resume);
  const std::int64_t recorded =
      opened.resume.is_live ? std::min(progress.step, opened.resume.recorded_step) : progress.step;
  auto folder = opened.resume.is_start()
                    ? engine::RunFolder::create(job.job.run_dir, opened.resolved)
                    : engine::RunFolder::resume(job.job.run_dir, opened.resolved, progress,
                                                recorded, progress.generation);
  if (!folder.ok()) return std::move(folder).error();
  state::discard_leftovers(job.checkpoint_dir());
  const bool older = !state::checkpoints_in(job.checkpoint_dir()).empty();
  const auto unmoved =
      state::supersede_checkpoints(job.checkpoint_dir(), progress.step, progress.generation);
  // The oldest steps are removed first: those of a job that begins, beside what stays there.
  if (opened.resume.is_start() && !unmoved.empty()) return unmoved.front();
  const observe::LoggerOptions options{.node_name = name,
                                       .file = folder.value().path() / engine::RunFolder::kLogFile};
  auto logger = observe::Logger::create(&console, options);
  if (!logger.ok()) return std::move(logger).error();
  auto file = observe::Logger::create(nullptr, options);
  if (!file.ok()) return std::move(file).error();
  const observe::Logger& log = logger.value();
  if (!opened.resume.is_start())
    log.info(
        "going on after step " + std::to_string(progress.step) + ", from " +
        (opened.resume.is_live ? "nodes that kept their state" : opened.resume.folder.string()) +
        (opened.resume.changes.empty()
             ? ", nothing changed"
             : "; changed since then: " + job::changes_text(opened.resume.changes)));
  if (opened.resume.appended > 0)
    log.info(std::to_string(opened.resume.appended) +
             " samples were appended to the data; they are trained from epoch " +
             std::to_string(order.epochs.back().first_epoch + 1) + " of the data on");
  if (!opened.left_behind.empty())
    log.info("the run folder was still locked by " + opened.left_behind + ", which is gone");
  if (const auto& moved = folder.value().moved_to())
    log.info("begins anew: an older run was moved to " + moved->string());
  if (opened.resume.is_start() && older)
    log.info("begins anew: checkpoints of an older run were moved to " +
             (job.checkpoint_dir() / "superseded").string());
  for (const Error& error : unmoved) log.warning(engine::warning_text(error));
  if (opened.endpoint) show_figures(opened, folder.value(), log);
  for (const auto& warning : opened.warnings) log.warning(warning);
  if (auto noted =
          record_begin(folder.value().path(), opened.run_id, opened.incarnation, job, order);
      !noted.ok())
    return std::move(noted).error();
  return Run{std::make_shared<engine::RunFolder>(std::move(folder).value()),
             std::move(logger).value(), std::move(file).value()};
}

}  // namespace troupe::app
