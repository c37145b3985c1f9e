#include "app/planning.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <filesystem>

#include "app/job_problems.hpp"
#include "app/progress.hpp"
#include "app/read_limits.hpp"
#include "app/terminal.hpp"
#include "engine/execution/call_facts.hpp"
#include "engine/iteration/data_warnings.hpp"
#include "engine/iteration/simulated_trace.hpp"
#include "engine/layout/choose_layout.hpp"
#include "engine/layout/operator_rule.hpp"
#include "engine/layout/resolve_sums.hpp"
#include "engine/profiling/nominal_profile.hpp"
#include "engine/profiling/profile_data.hpp"
#include "engine/profiling/profile_shards.hpp"
#include "engine/setup/kept_lengths.hpp"
#include "engine/setup/source_nodes.hpp"
#include "engine/state/state_memory.hpp"
#include "runtime/job/where_given.hpp"
#include "runtime/observe/timeline_page.hpp"
#include "scheduler/cost/state_bytes.hpp"
#include "scheduler/layout/layout_score.hpp"
#include "scheduler/recovery/first_layout.hpp"

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
  const Progress progress("reading the lengths of samples");
  auto shapes =
      engine::draw_shapes(planning.setup, engine::kLayoutSamples, planning.setup.job.job.seed);
  if (!shapes.ok()) return std::move(shapes).error();
  planning.request.samples = std::move(shapes).value();
  return Done{};
}

/// What a plan for other machines leaves out of the job; what is the machines' own is meant to be.
void warn_of_elsewhere(const job::LoadedJob& loaded, std::vector<std::string>& warnings) {
  const auto warn = [&](const std::string& key, const std::string& why) {
    if (!loaded.origins.contains(key)) return;
    warnings.push_back(job::where_given(loaded.origins, key) + ": " + key +
                       " has no effect with --cluster: " + why);
  };
  for (const char* key : {"parallel.pipelines", "parallel.replicas"})
    if (!loaded.job.parallel.layout.empty())
      warn(key, "they are for the job's own nodes, and the planner chooses");
  if (loaded.job.cluster.device_memory_gib > 0)
    warn("cluster.device_memory_gib", "the device named there has its own memory");
}

}  // namespace

std::vector<std::string> warnings_of(const job::LoadedJob& loaded, const engine::JobSetup& setup,
                                     bool elsewhere) {
  std::vector<std::string> warnings;
  // Without the layout by hand what stands beside it counts.
  for (const auto& warning : loaded.warnings)
    if (!elsewhere || !warning.message.starts_with("parallel."))
      warnings.push_back(engine::warning_text(warning));
  if (const auto dataset = data::Dataset::open(setup.data); dataset.ok())
    for (const auto& warning : engine::data_warnings(loaded, dataset.value()))
      warnings.push_back(engine::warning_text(warning));
  if (elsewhere) warn_of_elsewhere(loaded, warnings);
  if (!loaded.job.debug.layouts.empty())
    warnings.push_back(job::where_given(loaded.origins, "debug.layouts") +
                       ": debug.layouts has no effect here: only the first layout is planned");
  return warnings;
}

namespace {

engine::PlanningCosts costs_of(const Planning& planning) {
  return {planning.model, planning.request.prediction, planning.request.device_memory};
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

Result<job::LoadedJob> read_job_on_paper(const JobArguments& arguments, bool with_data) {
  auto reading = read_job_in_time(arguments.file, arguments.all());
  std::erase_if(reading.problems, [&](const Error& problem) {
    const bool of_cluster = problem.message.starts_with("cluster.");
    const bool of_data = problem.message.starts_with("data.sources");
    return (problem.code == Errc::unavailable && of_cluster) ||
           (problem.code == Errc::not_found && of_data && !with_data);
  });
  if (reading.ok()) return std::move(reading.loaded);
  Error first = reading.problems.front();
  if (reading.problems.size() > 1)
    first.message += "; " + std::to_string(reading.problems.size() - 1) +
                     " more problems: `troupe validate " + arguments.file + "` shows all";
  return first;
}

scheduler::CallFacts call_facts(const job::Cluster& cluster, const std::string& elsewhere) {
  if (elsewhere.empty()) return engine::call_facts(cluster);
  scheduler::CallFacts facts;
  facts.device = elsewhere;
  facts.has_streams = facts.over_host = true;
  return facts;
}

namespace {

/// Puts in what `cluster.sums = "auto"` means, by the layout that the job would have by messages.
Status resolve_sums(Planning& planning, const std::string& elsewhere) {
  auto& setup = planning.setup;
  if (!engine::leaves_sums_open(setup.job)) return Done{};
  const auto facts = call_facts(setup.job.cluster, elsewhere);
  planning.sums = engine::settle_sums(setup, facts, "");
  if (planning.sums) return Done{};
  auto layout = make_layout(planning);
  if (!layout.ok()) return std::move(layout).error();
  auto chosen = engine::choose_sums(setup, facts, layout.value().plan, planning.request.prediction);
  if (!chosen.ok()) return std::move(chosen).error();
  planning.sums = std::move(chosen).value();
  planning.model.set_sums(setup.model.sums);
  if (!is_by_nccl(setup.model.sums)) planning.layout_by_messages = std::move(layout).value();
  return Done{};
}

/// Of layers here; or computed for machines that are not, and corrected as far as one of their
/// devices was measured.
Result<scheduler::Profile> profile_for(Planning& planning, const job::LoadedJob& loaded,
                                       const std::optional<PlannedCluster>& elsewhere) {
  if (!elsewhere) return engine::profile_at_hand(planning.setup);
  planning.corrected =
      engine::corrected_profile(planning.setup, elsewhere->device, engine::planned_degrees());
  warn_of_profile(loaded, *planning.corrected, planning.warnings);
  return planning.corrected->profile;
}

}  // namespace

Result<std::unique_ptr<Planning>> open_planning(const PlanningArguments& arguments) {
  std::optional<PlannedCluster> elsewhere;
  if (!arguments.cluster.empty()) {
    auto parsed = parse_cluster(arguments.cluster);
    if (!parsed.ok()) return std::move(parsed).error();
    elsewhere = std::move(parsed).value();
  }
  auto job = read_job_on_paper(arguments.job, true);
  if (!job.ok()) return std::move(job).error();
  auto planning = std::make_unique<Planning>();
  planning->reads = std::make_unique<EndOnStalledRead>(job.value().job);
  auto setup = engine::prepare(job.value().job);
  if (!setup.ok()) return std::move(setup).error();
  planning->setup = std::move(setup).value();
  if (auto known = check_kinds(planning->setup, {}); !known.ok()) return known.error();
  planning->warnings = warnings_of(job.value(), planning->setup, elsewhere.has_value());
  auto profile = profile_for(*planning, job.value(), elsewhere);
  if (!profile.ok()) return std::move(profile).error();
  auto model = engine::cost_model(planning->setup, profile.value());
  if (!model.ok()) return std::move(model).error();
  planning->model = std::move(model).value();
  planning->device = elsewhere ? elsewhere->device.name : "cpu";
  // Stages of several devices may take any number of the profile, others only those of one device.
  auto worst = scheduler::CostOrigin::measured;
  for (const auto& kind : profile.value().profiles)
    if (elsewhere || kind.parallelism == scheduler::Parallelism{})
      worst = std::max(worst, kind.origin);
  planning->costs = std::string(to_string(worst));
  planning->by_hand = !elsewhere && !planning->setup.job.parallel.layout.empty();
  auto& request = planning->request;
  request = engine::layout_request(planning->setup, planning->model, profile.value().speeds);
  if (elsewhere) {
    request.cluster = elsewhere->shape;
    request.device_memory = elsewhere->device.memory;
    request.planned_only = true;
    request.spares = 0;
  }
  engine::keep_lengths(planning->setup);
  if (auto read = read_shapes(*planning); !read.ok()) return std::move(read).error();
  for (auto& note : engine::release_lengths(planning->setup))
    planning->warnings.push_back(std::move(note));
  if (auto resolved = resolve_sums(*planning, elsewhere ? elsewhere->device.name : "");
      !resolved.ok())
    return std::move(resolved).error();
  return planning;
}

namespace {

Result<scheduler::AutoLayout> layout_by_hand(const Planning& planning) {
  scheduler::AutoLayout made;
  made.layout = planning.setup.job.parallel.layout;
  auto plan = engine::place_own_layout(planning.setup);
  if (!plan.ok()) return std::move(plan).error();
  made.plan = std::move(plan).value();
  if (auto split = engine::check_grids(planning.setup, made.plan); !split.ok())
    return std::move(split).error();
  // The check of training, in its words; what else a step takes is looked at with its prediction.
  auto fits = engine::check_state_memory(planning.setup.job, made.plan,
                                         engine::memory_at_hand(planning.setup.job.cluster));
  if (!fits.ok()) return std::move(fits).error();
  made.reasons = {
      {"by hand",
       "the job file says so; parallel.mode=auto parallel.pipelines=[] lets the planner choose"}};
  made.simulated = 1;
  return made;
}

Result<scheduler::AutoLayout> search_layout(const Planning& planning, bool one_number) {
  const Progress progress(planning.by_hand ? "simulating the layout" : "searching for a layout");
  const auto& job = planning.setup.job;
  // Before the search, which would say that memory does not do.
  if (auto seen = engine::check_sources(job, planning.request.cluster.nodes); !seen.ok())
    return seen.error();
  const auto judge =
      engine::training_judge(planning.setup, costs_of(planning), planning.request.samples);
  auto request = planning.request;
  request.one_number = one_number;
  if (engine::needs_judge(job)) request.judge = judge;
  auto made = planning.by_hand ? layout_by_hand(planning) : scheduler::first_layout(request);
  if (!made.ok()) return made;
  if (auto run = check_kinds(planning.setup, {&made.value().plan, 1}); !run.ok())
    return run.error();
  if (auto rule = engine::operator_rule(job)) made.value().reasons.push_back(std::move(*rule));
  if (made.value().judged > 0) return made;
  if (auto seen = engine::check_sources(job, made.value().plan.nodes()); !seen.ok())
    return seen.error();
  auto predicted = judge(made.value().plan);
  if (!predicted.ok()) return std::move(predicted).error();
  made.value().predicted = std::move(predicted).value();
  return made;
}

}  // namespace

Result<scheduler::AutoLayout> make_layout(const Planning& planning, bool one_number) {
  auto made = planning.layout_by_messages && !one_number
                  ? Result<scheduler::AutoLayout>(*planning.layout_by_messages)
                  : search_layout(planning, one_number);
  if (made.ok() && planning.sums) made.value().reasons.push_back(*planning.sums);
  return made;
}

engine::SimulatedTraining training_on_paper(const Planning& planning,
                                            const scheduler::AutoLayout& layout) {
  return engine::training_on_paper(planning.setup, costs_of(planning), layout.plan);
}

std::string corrections_lines(const std::optional<engine::CorrectedProfile>& corrected) {
  return corrected ? wrapped(engine::corrections_text(*corrected), 2) + "\n" : "";
}

Json corrections_json(const std::optional<engine::CorrectedProfile>& corrected) {
  if (!corrected) return nullptr;
  Json kinds = Json::array();
  for (const auto& kind : corrected->kinds)
    kinds.push_back(
        {{"kind", kind.kind}, {"factor", kind.factor ? Json(*kind.factor) : Json(nullptr)}});
  return {{"file", corrected->measured.string()},
          {"device", corrected->measured_on},
          {"kinds", std::move(kinds)}};
}

void warn_of_profile(const job::LoadedJob& loaded, const engine::CorrectedProfile& corrected,
                     std::vector<std::string>& warnings) {
  if (!corrected.refused.empty())
    warnings.push_back(job::where_given(loaded.origins, "scheduler.profile") +
                       ": scheduler.profile has no effect with --cluster: " + corrected.refused);
}

std::vector<SampleShape> draw_batch(const Planning& planning, std::uint64_t seed) {
  return scheduler::draw_batch(planning.request.samples, planning.request.global_batch, seed);
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

Json runs_json(const ParallelPlan& plan, const Stage& stage) {
  Json runs = Json::array();
  for (const auto& run : stage.runs)
    runs.push_back({{"module", plan.model.at(run.module).name},
                    {"layers", {run.layers.begin, run.layers.end}}});
  return runs;
}

std::string percent(double share) {
  return std::to_string(static_cast<int>(100 * share + 0.5)) + " %";
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
