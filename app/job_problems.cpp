#include "app/job_problems.hpp"

#include <optional>
#include <string>
#include <utility>

#include "engine/execution/stage_kinds.hpp"
#include "engine/iteration/data_warnings.hpp"
#include "engine/iteration/plan_summary.hpp"
#include "engine/layout/choose_layout.hpp"
#include "engine/profiling/nominal_profile.hpp"
#include "engine/setup/initial_layers.hpp"
#include "engine/state/state_memory.hpp"
#include "models/factory.hpp"
#include "runtime/job/where_given.hpp"
#include "runtime/state/checkpoint.hpp"
#include "runtime/state/incomplete_save.hpp"
#include "scheduler/layout/layout_problems.hpp"

namespace troupe::app {

namespace {

/// Whether the state of every layout fits into its devices. REQUIRES: there are layouts.
Status check_memory(const engine::JobSetup& setup) {
  auto plans = engine::later_layouts(setup).value();
  plans.insert(plans.begin(), engine::make_parallel_plan(setup).value());
  for (const ParallelPlan& each : plans) {
    auto fits =
        engine::check_state_memory(setup.job, each, engine::memory_at_hand(setup.job.cluster));
    if (!fits.ok()) return fits;
  }
  return Done{};
}

/// What only the model builder and the planner can tell.
std::vector<Error> planning_problems(const job::Job& job) {
  auto problems = engine::setup_problems(job);
  const auto model = models::build_graph(job.modules);
  if (!model.ok()) return problems;
  // A layout that is to be chosen has no place to point at; the choice says what is wrong.
  if (job.parallel.mode == job::LayoutMode::manual) {
    const auto layout = scheduler::layout_problems(
        model.value(), job.parallel.layout, {job.cluster.nodes, job.cluster.devices_per_node},
        engine::idle_of(job), engine::tolerance_of(job));
    problems.insert(problems.end(), layout.begin(), layout.end());
  }
  if (!problems.empty()) return problems;
  job::Job resolved = job;
  if (auto found = engine::resolve_init(resolved); !found.ok()) return {found.error()};
  const auto setup = engine::prepare(resolved).value();
  problems = engine::init_problems(setup);
  std::vector<ParallelPlan> layouts;
  if (auto plan = engine::make_parallel_plan(setup); !plan.ok())
    problems.push_back(plan.error());
  else
    layouts.push_back(std::move(plan).value());
  if (auto later = engine::later_layouts(setup); !later.ok())
    problems.push_back(later.error());
  else
    layouts.insert(layouts.end(), later.value().begin(), later.value().end());
  if (auto run = check_kinds(setup, layouts); !run.ok()) problems.push_back(run.error());
  // Where the job says what devices have, no machine can make it fit.
  if (problems.empty() && job.cluster.device_memory_gib > 0)
    if (auto fits = check_memory(setup); !fits.ok()) problems.push_back(fits.error());
  return problems;
}

/// A run of this job before has saved only parts of its newest state.
std::optional<Error> only_parts(const job::Job& job) {
  auto parts = state::why_only_parts(job.checkpoint_dir());
  if (!parts) return parts;
  const auto whole = state::checkpoints_in(job.checkpoint_dir());
  parts->message += whole.empty() ? "; no checkpoint there is whole"
                                  : "; the newest whole checkpoint is of step " +
                                        std::to_string(whole.rbegin()->first);
  return parts;
}

}  // namespace

std::vector<Error> job_problems(const job::LoadedJob& loaded, const std::string& file) {
  auto problems = planning_problems(loaded.job);
  for (Error& problem : problems) {
    const std::string given = job::where_given(loaded.origins, problem.where);
    problem.message = problem.where + ": " + problem.message;
    problem.where = given.empty() ? file : given;
  }
  return problems;
}

Status check_kinds(const engine::JobSetup& setup, std::span<const ParallelPlan> plans) {
  if (auto known = engine::check_stage_families(); !known.ok()) return known;
  const bool puts_away = setup.job.scheduler.offloads("activations");
  for (const ParallelPlan& plan : plans)
    if (auto run = engine::check_stage_kinds(plan, setup.modules(), puts_away); !run.ok())
      return run;
  return Done{};
}

Status check_memory_here(const engine::JobSetup& setup) {
  const auto& cluster = setup.job.cluster;
  return cluster.local_nodes == cluster.nodes ? check_memory(setup) : Status(Done{});
}

std::vector<Error> job_warnings(const job::LoadedJob& loaded, const engine::JobSetup& setup) {
  auto warnings = loaded.warnings;
  if (auto fits = check_memory_here(setup); !fits.ok()) {
    // No problem, since the job may run on another machine.
    warnings.push_back(std::move(fits).error());
    warnings.back().message += "; training would be refused on this machine";
  }
  if (auto parts = only_parts(loaded.job)) warnings.push_back(*std::move(parts));
  const auto dataset = data::Dataset::open(setup.data);
  if (!dataset.ok()) return warnings;
  for (auto& warning : engine::data_warnings(loaded, dataset.value()))
    warnings.push_back(std::move(warning));
  return warnings;
}

}  // namespace troupe::app
