#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "app/commands.hpp"
#include "app/terminal.hpp"
#include "engine/job_setup.hpp"
#include "runtime/job/load_job.hpp"

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
  return std::to_string(module.layers.size()) + " layers, " + with_unit(elements) + " parameters" +
         (module.freeze ? ", frozen" : "");
}

/// What the job would do, in a few lines.
void print_summary(const job::Job& job, const ModelGraph& model, const ParallelPlan& plan) {
  for (const auto& module : model.modules)
    std::cout << "  " << module.name << ": " << parts_text(module) << '\n';
  std::cout << "  layout: " << plan.pipelines.size()
            << (plan.pipelines.size() == 1 ? " pipeline of " : " pipelines of ");
  for (std::size_t i = 0; i < plan.pipelines.size(); ++i)
    std::cout << (i == 0 ? "" : " and ") << plan.pipelines[i].stages.size();
  std::cout << " stages on " << job.cluster.nodes
            << (job.cluster.nodes == 1 ? " node\n" : " nodes\n");
}

int validate(const Options& options) {
  auto reading = job::read_job(options.job.file, options.job.all());
  if (reading.ok()) {
    // What only the model builder and the planner can tell.
    const auto& job = reading.loaded.job;
    const auto setup = engine::prepare(job);
    const auto plan = setup.ok() ? engine::make_parallel_plan(setup.value())
                                 : Result<ParallelPlan>(setup.error());
    if (plan.ok()) {
      if (options.resolved) return std::cout << job::to_toml(reading.loaded), kDone;
      std::cout << options.job.file << ": no problems\n";
      print_summary(job, setup.value().model, plan.value());
      return kDone;
    }
    reading.problems.push_back(plan.error());
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
