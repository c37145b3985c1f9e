#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "app/commands.hpp"
#include "app/stalled_read.hpp"
#include "app/terminal.hpp"
#include "engine/choose_layout.hpp"
#include "engine/data_warnings.hpp"
#include "engine/initial_layers.hpp"
#include "engine/job_setup.hpp"
#include "engine/nominal_profile.hpp"
#include "engine/plan_summary.hpp"
#include "engine/state_memory.hpp"
#include "models/factory.hpp"
#include "runtime/job/load_job.hpp"
#include "runtime/job/where_given.hpp"
#include "runtime/observe/plan_words.hpp"
#include "scheduler/layout_problems.hpp"

namespace troupe::app {

namespace {

struct Options {
  JobArguments job;
  bool resolved = false;
};

std::string parts_text(const ModuleSpec& module) {
  std::int64_t elements = 0;
  for (const auto& layer : module.layers)
    elements += layer.parameter_elements + layer.constant_elements;
  return std::to_string(module.layers.size()) +
         (module.layers.size() == 1 ? " layer, " : " layers, ") + with_unit(elements) +
         " parameters" + (module.freeze ? ", frozen" : "");
}

/// What the job would do, in a few lines.
void print_summary(const job::Job& job, const ModelGraph& model, const ParallelPlan& plan) {
  for (const auto& module : model.modules)
    std::cout << "  " << module.name << ": " << parts_text(module) << '\n';
  std::cout << "  layout: " << observe::layout_words(plan) << " on " << job.cluster.nodes
            << (job.cluster.nodes == 1 ? " node\n" : " nodes\n");
  for (const std::string& line : engine::standby_lines(plan, job.train.dtype))
    std::cout << "  " << line << '\n';
}

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
  const auto layout = scheduler::layout_problems(model.value(), job.parallel.layout,
                                                 {job.cluster.nodes, job.cluster.devices_per_node},
                                                 engine::idle_of(job), engine::tolerance_of(job));
  problems.insert(problems.end(), layout.begin(), layout.end());
  if (!problems.empty()) return problems;
  job::Job resolved = job;
  if (auto found = engine::resolve_init(resolved); !found.ok()) return {found.error()};
  const auto setup = engine::prepare(resolved).value();
  problems = engine::init_problems(setup);
  if (auto plan = engine::make_parallel_plan(setup); !plan.ok()) problems.push_back(plan.error());
  if (auto later = engine::later_layouts(setup); !later.ok()) problems.push_back(later.error());
  // Where the job says what devices have, no machine can make it fit.
  if (problems.empty() && job.cluster.device_memory_gib > 0)
    if (auto fits = check_memory(setup); !fits.ok()) problems.push_back(fits.error());
  return problems;
}

/// The same at the lines of the job file.
std::vector<Error> planning_problems(const job::LoadedJob& loaded, const std::string& file) {
  auto problems = planning_problems(loaded.job);
  for (Error& problem : problems) {
    const std::string given = job::where_given(loaded.origins, problem.where);
    problem.message = problem.where + ": " + problem.message;
    problem.where = given.empty() ? file : given;
  }
  return problems;
}

/// What training would refuse here. A warning, since the job may run on another machine.
std::vector<Error> memory_warnings(const job::Job& job, const engine::JobSetup& setup) {
  if (job.cluster.local_nodes != job.cluster.nodes) return {};
  auto fits = check_memory(setup);
  if (fits.ok()) return {};
  Error warning = std::move(fits).error();
  warning.message += "; training would be refused on this machine";
  return {std::move(warning)};
}

/// What the job says in vain. Data that cannot be opened are the business of `data check`.
std::vector<Error> warnings_of(const job::LoadedJob& loaded, const engine::JobSetup& setup) {
  auto warnings = loaded.warnings;
  for (auto& warning : memory_warnings(loaded.job, setup)) warnings.push_back(std::move(warning));
  const auto dataset = data::Dataset::open(setup.data);
  if (!dataset.ok()) return warnings;
  for (auto& warning : engine::data_warnings(loaded, dataset.value()))
    warnings.push_back(std::move(warning));
  return warnings;
}

int report(const Options& options, const job::LoadedJob& loaded) {
  if (options.resolved) return std::cout << job::to_toml(loaded), kDone;
  const auto setup = engine::prepare(loaded.job);
  const auto plan = engine::make_parallel_plan(setup.value());
  const auto warnings = warnings_of(loaded, setup.value());
  for (const auto& warning : warnings) std::cerr << "warning: " << to_string(warning) << '\n';
  std::cout << options.job.file << ": no problems";
  if (!warnings.empty())
    std::cout << ", " << warnings.size() << (warnings.size() == 1 ? " warning" : " warnings");
  std::cout << '\n';
  print_summary(loaded.job, setup.value().model, plan.value());
  return kDone;
}

int validate(const Options& options) {
  auto reading = job::read_job(options.job.file, options.job.all());
  if (reading.ok()) {
    const EndOnStalledRead reads(reading.loaded.job.data.read_timeout_s);
    reading.problems = planning_problems(reading.loaded, options.job.file);
    if (reading.ok()) return report(options, reading.loaded);
  }
  // The one command that prints more than five lines: it was asked for all of them.
  int code = kUsage;
  for (const auto& problem : reading.problems) {
    std::cerr << to_string(problem) << '\n';
    code = exit_code(problem);
  }
  const auto count = reading.problems.size();
  std::cerr << count << (count == 1 ? " problem" : " problems") << ". Nothing was started.\n";
  return code;
}

}  // namespace

void add_validate(Commands& commands) {
  auto options = std::make_shared<Options>();
  auto* command = commands.add("validate", "Report every problem of a job file at once",
                               [options] { return validate(*options); });
  options->job.add_to(*command);
  command->add_flag("--resolved", options->resolved,
                    "Print the complete job with the origin of every value");
}

}  // namespace troupe::app
