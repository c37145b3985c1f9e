// `troupe simulate`: steps of a job on paper, over batches of its own data.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>

#include "app/exchange_text.hpp"
#include "app/phase_text.hpp"
#include "app/planning.hpp"
#include "app/planning_text.hpp"
#include "app/progress.hpp"
#include "app/terminal.hpp"
#include "scheduler/layout/layout_score.hpp"

namespace troupe::app {

namespace {

constexpr std::int64_t kStepsMax = 10'000;

struct Options {
  PlanningArguments planning;
  std::int64_t steps = 8;
  double noise = 0;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> failures;
  std::string timeline;
};

/// One simulated step, without what it consisted of.
struct StepRow {
  double step_ms = 0;
  double bubble = 0;
  double lower_bound_ms = 0;
  bool completed = true;
};

struct Simulated {
  std::vector<StepRow> steps;
  scheduler::StepBreakdown breakdown;  ///< Mean of all steps; of a lost one nothing.
  /// Per module group: means of all steps, as planned.
  std::vector<engine::PhaseBalance> phases;
  std::vector<engine::FarRows> far_rows;
  engine::ExchangeCount exchange;
  scheduler::AutoLayout layout;  ///< Its prediction is the mean of the steps that completed.
  PredictedBatch first;
};

/// `NODE@MS`.
Result<scheduler::SimulationOptions::Failure> parse_failure(const std::string& text,
                                                            std::int32_t nodes) {
  int node = -1, read = 0;
  double at_ms = -1;
  const int found = std::sscanf(text.c_str(), "%d@%lf%n", &node, &at_ms, &read);
  if (found != 2 || static_cast<std::size_t>(read) != text.size() || !std::isfinite(at_ms) ||
      at_ms < 0)
    return usage_error("--fail " + text + " is not NODE@MILLISECONDS", "write it as 2@120");
  if (node < 0 || node >= nodes)
    return usage_error("--fail " + text + ": there is no node " + std::to_string(node),
                       "name one of 0 to " + std::to_string(nodes - 1));
  return scheduler::SimulationOptions::Failure{NodeId{node}, at_ms};
}

Status check(const Options& options) {
  if (options.steps < 1 || options.steps > kStepsMax)
    return usage_error(
        "--steps " + std::to_string(options.steps) + " is not from 1 to " + with_commas(kStepsMax),
        "leave it out for 8");
  if (!(options.noise >= 0 && options.noise <= 2))
    return usage_error("--noise is not a deviation from 0 to 2",
                       "0.1 makes a time about 10 % longer or shorter");
  return check_timeline_file(options.timeline);
}

/// Adds a part of a step's breakdown to that of all.
void add(const scheduler::StepBreakdown& step, double part, scheduler::StepBreakdown& all) {
  all.work_ms += part * step.work_ms;
  all.fill_ms += part * step.fill_ms;
  all.boundary_ms += part * step.boundary_ms;
  all.rest_ms += part * step.rest_ms;
  all.phases.resize(step.phases.size());
  for (std::size_t g = 0; g < step.phases.size(); ++g) {
    all.phases[g].largest_ms += part * step.phases[g].largest_ms;
    all.phases[g].even_ms += part * step.phases[g].even_ms;
  }
}

/// Adds what is planned of a step to the means of all.
void add(const engine::Prediction& step, double part, Simulated& made) {
  made.phases.resize(step.phases.size(), {0, 0, 0});
  made.far_rows.resize(step.far_rows.size());
  for (std::size_t g = 0; g < step.phases.size(); ++g) {
    made.phases[g].drawn += part * step.phases[g].drawn;
    made.phases[g].planned += part * step.phases[g].planned;
    made.phases[g].bound += part * step.phases[g].bound;
    made.far_rows[g].planned += part * step.far_rows[g].planned;
    made.far_rows[g].bound += part * step.far_rows[g].bound;
  }
  made.exchange.add(step);
}

/// Failures happen in the first step; what comes after it would run on another layout.
Result<Simulated> simulate_steps(const Options& options, const Planning& planning,
                                 scheduler::AutoLayout layout,
                                 std::vector<scheduler::SimulationOptions::Failure> failures) {
  Progress progress("simulating");
  const auto seed = options.seed.value_or(planning.request.seed);
  const std::int64_t count = failures.empty() ? options.steps : 1;
  Simulated made;
  scheduler::PredictedStep sum;
  auto training = training_on_paper(planning, layout);
  for (std::int64_t step = 0; step < count; ++step) {
    progress.now("simulating step " + std::to_string(step + 1) + " of " + std::to_string(count));
    const auto own = seed + static_cast<std::uint64_t>(step);
    scheduler::SimulationOptions how;
    how.noise = options.noise;
    how.seed = own;
    how.failures = failures;
    how.record_timeline = true;
    auto batch = training.step(draw_batch(planning, own), how);
    if (!batch.ok()) return std::move(batch).error();
    const auto& done = batch.value().step;
    made.steps.push_back({done.step_ms, done.bubble, batch.value().lower_bound_ms, done.completed});
    scheduler::add_step(done, sum);
    add(batch.value().prediction, 1 / static_cast<double>(count), made);
    if (const auto& parts = batch.value().breakdown)
      add(*parts, 1 / static_cast<double>(count), made.breakdown);
    if (step == 0) made.first = std::move(batch).value();
  }
  scheduler::divide_steps(sum, static_cast<double>(count));
  made.layout = std::move(layout);
  made.layout.predicted = std::move(sum);
  return made;
}

double mean(const std::vector<StepRow>& steps, double StepRow::*value) {
  double sum = 0;
  for (const auto& step : steps) sum += step.*value;
  return sum / static_cast<double>(steps.size());
}

std::pair<double, double> range(const std::vector<StepRow>& steps) {
  const auto [least, most] =
      std::minmax_element(steps.begin(), steps.end(),
                          [](const auto& a, const auto& b) { return a.step_ms < b.step_ms; });
  return {least->step_ms, most->step_ms};
}

/// What is left of the step beside the bound, how even phases are, and whether they are exchanged.
void print_breakdown(const Planning& planning, const Simulated& made) {
  const auto& parts = made.breakdown;
  std::cout << wrapped("beside that work: " + time_text(parts.fill_ms) + " pipeline fill, " +
                           time_text(parts.boundary_ms) + " boundary, " + time_text(parts.rest_ms) +
                           " sums, commit and moves",
                       2)
            << '\n';
  std::string text;
  for (std::size_t g = 0; g < parts.phases.size(); ++g) {
    const auto& phase = parts.phases[g];
    text += (text.empty() ? "imbalance: " : "; ") + made.layout.plan.module_groups[g].name + " " +
            time_text(std::max(0.0, phase.imbalance_ms())) + " (" + time_text(phase.largest_ms) +
            " on the busiest replica, " + time_text(phase.even_ms) + " if even)";
  }
  std::cout << wrapped(text, 2) << '\n';
  const auto& plan = made.layout.plan;
  for (const auto& more :
       {evenness_text(plan, made.phases, made.far_rows),
        exchange_text(plan, planning.setup.job.balancer.exchange, made.exchange)})
    if (!more.empty()) std::cout << wrapped(more, 2) << '\n';
  std::cout << '\n';
}

void print(const Options& options, const Planning& planning, const Simulated& made) {
  const auto& steps = made.steps;
  std::cout << wrapped(cluster_text(planning), 2) << '\n' << corrections_lines(planning.corrected);
  if (!steps.front().completed) {
    std::cout << "the step is lost: after " << time_text(steps.front().step_ms)
              << " no device can go on; nothing was committed\n\n";
  } else {
    const auto [least, most] = range(steps);
    const double bound = mean(steps, &StepRow::lower_bound_ms);
    std::cout << steps.size() << (steps.size() == 1 ? " step" : " steps") << ": "
              << time_text(mean(steps, &StepRow::step_ms)) << " on average";
    if (steps.size() > 1) std::cout << ", " << time_text(least) << " to " << time_text(most);
    std::cout << ", bubble " << percent(mean(steps, &StepRow::bubble)) << ", the busiest device "
              << "works " << time_text(bound) << " (no order can be faster)";
    if (options.noise > 0) std::cout << ", noise " << options.noise;
    std::cout << '\n';
    print_breakdown(planning, made);
  }
  print_stages(planning, made.layout);
  print_warnings(planning.warnings);
  print_timeline("the first step", made.layout, made.first);
}

/// Null of a step that is lost.
Json breakdown_json(const Simulated& made) {
  const auto& parts = made.breakdown;
  if (!made.steps.front().completed) return nullptr;
  Json phases = Json::array();
  for (std::size_t g = 0; g < parts.phases.size(); ++g) {
    phases.push_back({{"phase", made.layout.plan.module_groups[g].name},
                      {"largest_ms", parts.phases[g].largest_ms},
                      {"even_ms", parts.phases[g].even_ms}});
    add_figures(made.phases[g], made.far_rows[g], phases.back());
  }
  return {{"work_ms", parts.work_ms},
          {"fill_ms", parts.fill_ms},
          {"boundary_ms", parts.boundary_ms},
          {"rest_ms", parts.rest_ms},
          {"phases", std::move(phases)}};
}

Json to_json(const Options& options, const Planning& planning, const Simulated& made) {
  const auto [least, most] = range(made.steps);
  Json json = planning_json(planning, made.layout);
  json["corrections"] = corrections_json(planning.corrected);
  json["step_ms"] = mean(made.steps, &StepRow::step_ms);
  json["step_ms_min"] = least;
  json["step_ms_max"] = most;
  json["bubble"] = mean(made.steps, &StepRow::bubble);
  json["lower_bound_ms"] = mean(made.steps, &StepRow::lower_bound_ms);
  json["breakdown"] = breakdown_json(made);
  json["exchange"] =
      exchange_json(made.layout.plan, planning.setup.job.balancer.exchange, made.exchange);
  json["completed"] = made.steps.front().completed;
  json["noise"] = options.noise;
  json["seed"] = options.seed.value_or(planning.request.seed);
  json["steps"] = Json::array();
  for (const auto& step : made.steps)
    json["steps"].push_back({{"step_ms", step.step_ms},
                             {"bubble", step.bubble},
                             {"lower_bound_ms", step.lower_bound_ms}});
  json["stages"] = stages_json(planning, made.layout);
  return json;
}

int simulate(const Options& options) {
  if (auto checked = check(options); !checked.ok()) return report(checked.error());
  const auto opened = open_planning(options.planning);
  if (!opened.ok()) return report(opened.error());
  const Planning& planning = *opened.value();
  std::vector<scheduler::SimulationOptions::Failure> failures;
  for (const auto& text : options.failures) {
    const auto failure = parse_failure(text, planning.request.cluster.nodes);
    if (!failure.ok()) return report(failure.error());
    failures.push_back(failure.value());
  }
  auto layout = make_layout(planning);
  if (!layout.ok()) return report(layout.error());
  const auto made =
      simulate_steps(options, planning, std::move(layout).value(), std::move(failures));
  if (!made.ok()) return report(made.error());
  if (!options.timeline.empty())
    if (auto written =
            write_timeline(planning, made.value().layout, made.value().first, options.timeline);
        !written.ok())
      return report(written.error());
  if (options.planning.json)
    std::cout << to_json(options, planning, made.value()).dump(2) << '\n';
  else
    print(options, planning, made.value());
  return kDone;
}

}  // namespace

void add_simulate(Commands& commands) {
  auto options = std::make_shared<Options>();
  auto* command = commands.add("simulate", "Predict the steps of a job, device by device",
                               [options] { return simulate(*options); });
  options->planning.add_to(*command);
  command->add_option("--steps", options->steps, "Batches to simulate")->capture_default_str();
  command->add_option("--noise", options->noise,
                      "Deviation of the time of a task, as a share of it");
  command->add_option("--seed", options->seed, "Of batches and noise; default: job.seed");
  command->add_option("--fail", options->failures, "A node stops in the first step: 2@120")
      ->type_name("NODE@MS")
      ->allow_extra_args(false);
  command
      ->add_option("--timeline", options->timeline,
                   "Write the first step as a page (.html) or for Perfetto (.json)")
      ->type_name("FILE");
}

}  // namespace troupe::app
