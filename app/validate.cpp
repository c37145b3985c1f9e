#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "app/commands.hpp"
#include "app/job_problems.hpp"
#include "app/read_limits.hpp"
#include "app/stalled_read.hpp"
#include "app/terminal.hpp"
#include "engine/execution/stage_kinds.hpp"
#include "engine/iteration/plan_summary.hpp"
#include "engine/layout/choose_layout.hpp"
#include "engine/setup/job_setup.hpp"
#include "runtime/job/load_job.hpp"
#include "runtime/observe/plan_words.hpp"

namespace troupe::app {

namespace {

struct Options {
  JobArguments job;
  bool resolved = false;
};

std::string parts_text(const ModelGraph& model, ModuleId id) {
  const ModuleSpec& module = model.at(id);
  return std::to_string(module.layers.size()) +
         (module.layers.size() == 1 ? " layer, " : " layers, ") +
         with_unit(module_elements(model, id).all) + " parameters" +
         (module.freeze ? ", frozen" : "") +
         (module.attention == AttentionRule::modality ? ", attention by modality" : "");
}

/// What the job would do, in a few lines.
void print_summary(const job::Job& job, const ModelGraph& model, const ParallelPlan& plan) {
  for (std::size_t m = 0; m < model.modules.size(); ++m)
    std::cout << "  " << model.modules[m].name << ": " << parts_text(model, ModuleId{m}) << '\n';
  std::cout << "  layout: " << observe::layout_words(plan) << " on " << job.cluster.nodes
            << (job.cluster.nodes == 1 ? " node\n" : " nodes\n");
  for (const std::string& line : engine::stage_kind_lines(plan, job.modules))
    std::cout << "  " << line << '\n';
  for (const std::string& line : engine::standby_lines(plan, job.train.dtype))
    std::cout << "  " << line << '\n';
  if (const auto host = engine::host_text(plan, job.train.dtype); !host.empty())
    std::cout << "  " << host << '\n';
}

int report(const Options& options, const job::LoadedJob& loaded) {
  if (options.resolved) return std::cout << job::to_toml(loaded), kDone;
  const auto setup = engine::prepare(loaded.job);
  const auto plan = engine::make_parallel_plan(setup.value());
  const auto warnings = job_warnings(loaded, setup.value());
  for (const auto& warning : warnings) std::cerr << "warning: " << to_string(warning) << '\n';
  std::cout << options.job.file << ": no problems";
  if (!warnings.empty())
    std::cout << ", " << warnings.size() << (warnings.size() == 1 ? " warning" : " warnings");
  std::cout << '\n';
  print_summary(loaded.job, setup.value().model, plan.value());
  return kDone;
}

int validate(const Options& options) {
  auto reading = read_job_in_time(options.job.file, options.job.all());
  if (reading.ok()) {
    const EndOnStalledRead reads(reading.loaded.job);
    reading.problems = job_problems(reading.loaded, options.job.file);
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
