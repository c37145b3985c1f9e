#include "app/planning.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <numeric>

#include "app/terminal.hpp"
#include "engine/choose_layout.hpp"
#include "engine/nominal_profile.hpp"
#include "engine/profile_data.hpp"
#include "engine/simulated_trace.hpp"
#include "runtime/job/load_job.hpp"
#include "runtime/observe/console.hpp"
#include "runtime/observe/timeline_page.hpp"
#include "scheduler/plan_iteration.hpp"

namespace troupe::app {

namespace {

Result<std::int32_t> count_of(std::string_view text, const std::string& whole) {
  std::int32_t count = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (failed != std::errc{} || end != text.data() + text.size() || count < 1 || count > 100'000)
    return usage_error(
        "--cluster " + whole + ": '" + std::string(text) + "' is no number from 1 to 100,000",
        "write nodes x devices x device, as 4x8xH100-80G");
  return count;
}

Status read_shapes(Planning& planning) {
  observe::Console console(observe::detect_console(2));
  console.status("reading the lengths of samples ...");
  auto shapes =
      engine::draw_shapes(planning.setup, engine::kLayoutSamples, planning.setup.job.job.seed);
  if (!shapes.ok()) return std::move(shapes).error();
  planning.request.samples = std::move(shapes).value();
  return Done{};
}

/// Samples in order, so many microbatches of equal size per pipeline.
std::vector<PipelineMicrobatches> assign_in_proportion(
    std::int64_t samples, const std::vector<std::int64_t>& microbatches) {
  const std::int64_t all = std::accumulate(microbatches.begin(), microbatches.end(), 0LL);
  std::vector<PipelineMicrobatches> assignment;
  std::int64_t made = 0;
  for (const auto count : microbatches) {
    PipelineMicrobatches& sides = assignment.emplace_back();
    for (std::int64_t m = 0; m < count; ++m, ++made) {
      Part part;
      for (auto i = made * samples / all; i < (made + 1) * samples / all; ++i)
        part.samples.push_back(static_cast<std::int32_t>(i));
      sides.llm.push_back({{std::move(part)}});
    }
    sides.encoder = sides.llm;
  }
  return assignment;
}

}  // namespace

void PlanningArguments::add_to(CLI::App& command) {
  job.add_to(command);
  command
      .add_option("--cluster", cluster,
                  "Plan for machines that are not here: nodes x devices x device, as 4x8xH100-80G")
      ->type_name("NxGxDEVICE");
  command.add_flag("--json", json, "Print one JSON object instead");
}

Result<PlannedCluster> parse_cluster(const std::string& text) {
  const auto first = text.find('x');
  const auto second = first == std::string::npos ? first : text.find('x', first + 1);
  if (second == std::string::npos)
    return usage_error("--cluster " + text + " is not nodes x devices x device",
                       "write it as 4x8xH100-80G");
  const std::string_view view = text;
  const auto nodes = count_of(view.substr(0, first), text);
  if (!nodes.ok()) return nodes.error();
  const auto devices = count_of(view.substr(first + 1, second - first - 1), text);
  if (!devices.ok()) return devices.error();
  if (std::int64_t{nodes.value()} * devices.value() > 100'000)
    return usage_error("--cluster " + text + " has more than 100,000 devices",
                       "plan for a part of it");
  auto device = scheduler::find_device(text.substr(second + 1));
  if (!device.ok()) {
    Error error = device.error();
    error.where = "--cluster " + text;
    if (error.fix.empty()) error.fix = "name one of these devices";
    return error;
  }
  return PlannedCluster{{nodes.value(), devices.value()}, device.value()};
}

Result<std::unique_ptr<Planning>> open_planning(const PlanningArguments& arguments) {
  std::optional<PlannedCluster> elsewhere;
  if (!arguments.cluster.empty()) {
    auto parsed = parse_cluster(arguments.cluster);
    if (!parsed.ok()) return std::move(parsed).error();
    elsewhere = std::move(parsed).value();
  }
  auto loaded = job::load_job(arguments.job.file, arguments.job.all());
  if (!loaded.ok()) return std::move(loaded).error();
  auto setup = engine::prepare(loaded.value().job);
  if (!setup.ok()) return std::move(setup).error();
  auto planning = std::make_unique<Planning>();
  planning->setup = std::move(setup).value();
  auto profile = elsewhere ? engine::nominal_profile(planning->setup, elsewhere->device, true)
                           : engine::profile_at_hand(planning->setup);
  if (!profile.ok()) return std::move(profile).error();
  auto model = scheduler::CostModel::create(planning->setup.model, profile.value());
  if (!model.ok()) return std::move(model).error();
  planning->model = std::move(model).value();
  planning->device = elsewhere ? elsewhere->device.name : "cpu";
  planning->costs = std::string(to_string(planning->model.origin(planning->setup.model.llm())));
  planning->by_hand = !elsewhere && !planning->setup.job.parallel.layout.pipelines.empty();
  auto& request = planning->request;
  request = engine::layout_request(planning->setup, planning->model, profile.value().speeds);
  if (elsewhere) {
    request.cluster = elsewhere->shape;
    request.device_memory = elsewhere->device.memory;
    request.planned_only = true;
  }
  if (auto read = read_shapes(*planning); !read.ok()) return std::move(read).error();
  return planning;
}

Result<scheduler::AutoLayout> make_layout(const Planning& planning) {
  if (!planning.by_hand) return scheduler::auto_layout(planning.request);
  scheduler::AutoLayout made;
  made.layout = planning.setup.job.parallel.layout;
  auto plan = scheduler::place_by_hand(planning.setup.model, made.layout, planning.request.cluster);
  if (!plan.ok()) return std::move(plan).error();
  made.plan = std::move(plan).value();
  for (const auto& slot : made.plan.devices)
    made.groups.push_back({slot.node, slot.local_index, 1});
  made.parallelisms.resize(planning.setup.model.modules.size());
  auto predicted = scheduler::predict_step(made.plan, planning.request);
  if (!predicted.ok()) return std::move(predicted).error();
  made.predicted = std::move(predicted).value();
  made.reasons = {
      {"by hand",
       "the job file says so; parallel.mode=auto parallel.pipelines=[] lets the planner choose"}};
  made.simulated = 1;
  return made;
}

Result<PredictedBatch> simulate_batch(const Planning& planning, const scheduler::AutoLayout& layout,
                                      std::uint64_t seed,
                                      const scheduler::SimulationOptions& options,
                                      const std::vector<std::int64_t>& microbatches) {
  const auto& request = planning.request;
  const ParallelPlan& plan = layout.plan;
  scheduler::IterationInput input;
  input.samples = scheduler::draw_batch(request.samples, request.global_batch, seed);
  auto prediction = request.prediction;
  prediction.parallelisms = layout.parallelisms;
  auto costs = scheduler::predicted_costs(plan, planning.model, input.samples, prediction);
  if (!costs.ok()) return std::move(costs).error();
  input.schedule = request.schedule;
  input.microbatches =
      microbatches.empty()
          ? scheduler::assign_by_count(static_cast<std::int32_t>(request.global_batch),
                                       static_cast<std::int32_t>(plan.pipelines.size()),
                                       static_cast<std::int32_t>(request.microbatches))
          : assign_in_proportion(request.global_batch, microbatches);
  input.task_cost = costs.value().task_ms;
  input.message_cost = scheduler::message_costs(plan, costs.value());
  auto iteration = scheduler::plan_iteration(plan, std::move(input));
  if (!iteration.ok()) return std::move(iteration).error();
  auto step = scheduler::simulate(plan, iteration.value(), costs.value(), options);
  if (!step.ok()) return std::move(step).error();
  PredictedBatch batch{std::move(iteration).value(), std::move(step).value(), 0};
  std::vector<double> work(plan.devices.size());
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    work[plan.stages[s].devices.front().index()] += batch.step.stage_ms[s];
  batch.lower_bound_ms = *std::max_element(work.begin(), work.end());
  return batch;
}

Status write_timeline(const Planning& planning, const scheduler::AutoLayout& layout,
                      const PredictedBatch& batch, const std::string& file) {
  const auto element_bytes =
      static_cast<std::int64_t>(scheduler::bytes_per_element(planning.setup.job.train.dtype));
  const auto events = engine::simulated_trace(batch.iteration, batch.step, element_bytes);
  return observe::write_timeline_file(file, planning.setup.job.job.name + ", a simulated step",
                                      events, observe::trace_names(layout.plan));
}

Status check_timeline_file(const std::string& file) {
  const auto suffix = std::filesystem::path(file).extension();
  if (file.empty() || suffix == ".html" || suffix == ".htm" || suffix == ".json") return Done{};
  return usage_error("--timeline " + file + ": a timeline is a page or a trace",
                     "name a file ending in .html, or in .json for ui.perfetto.dev");
}

std::string runs_text(const ParallelPlan& plan, const Stage& stage) {
  std::string text;
  for (const auto& run : stage.runs) {
    const auto& module = plan.model.at(run.module);
    text += (text.empty() ? "" : ", ") + module.name;
    if (module.layers.size() == 1) continue;
    text += " " + std::to_string(run.layers.begin);
    if (run.layers.size() > 1) text += "-" + std::to_string(run.layers.end - 1);
  }
  return text;
}

Json runs_json(const ParallelPlan& plan, const Stage& stage) {
  Json runs = Json::array();
  for (const auto& run : stage.runs)
    runs.push_back({{"module", plan.model.at(run.module).name},
                    {"layers", {run.layers.begin, run.layers.end}}});
  return runs;
}

std::string time_text(double ms) {
  std::array<char, 32> text{};
  if (ms >= 10'000)
    std::snprintf(text.data(), text.size(), "%.1f s", ms / 1000);
  else
    std::snprintf(text.data(), text.size(),
                  ms < 10    ? "%.2f ms"
                  : ms < 100 ? "%.1f ms"
                             : "%.0f ms",
                  ms);
  return text.data();
}

std::string size_text(double bytes) {
  static constexpr std::array<const char*, 5> kUnits{"B", "KB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < kUnits.size()) bytes /= 1000, ++unit;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit > 2 ? "%.1f %s" : "%.0f %s", bytes, kUnits[unit]);
  return text.data();
}

}  // namespace troupe::app
