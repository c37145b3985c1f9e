// `troupe balance`: what a balancing policy does to the data of a job.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "app/balance/policy_report.hpp"
#include "app/balance_text.hpp"
#include "app/commands.hpp"
#include "app/phase_text.hpp"
#include "app/planning.hpp"
#include "app/planning_text.hpp"
#include "app/progress.hpp"
#include "app/stalled_read.hpp"
#include "app/terminal.hpp"
#include "engine/layout/choose_layout.hpp"
#include "engine/layout/resolve_sums.hpp"
#include "engine/profiling/corrected_profile.hpp"
#include "engine/profiling/profile_data.hpp"
#include "engine/profiling/profile_run.hpp"
#include "engine/setup/kept_lengths.hpp"
#include "runtime/policies/registry.hpp"
#include "runtime/vocabulary/nearest_word.hpp"
#include "scheduler/simulate/predicted_costs.hpp"

namespace troupe::app {

namespace {

using Json = nlohmann::ordered_json;

struct BalanceArguments {
  JobArguments job;
  std::string policy;
  std::string cluster;  // Empty: this machine, measured.
  std::int64_t steps = 8;
  std::optional<std::uint64_t> seed;
  bool json = false;
};

// Stages of a pipeline before and from the llm on, and the devices that they run on.
struct PipelineShape {
  std::int32_t encoder_stages = 0;
  std::int32_t llm_stages = 0;
  std::int32_t devices = 0;

  friend bool operator==(const PipelineShape&, const PipelineShape&) = default;
};

PipelineShape shape_of(const ParallelPlan& plan, PipelineId pipeline) {
  PipelineShape shape;
  std::set<DeviceId> devices;
  for (const StageId stage : plan.stages_of(pipeline)) {
    ++(plan.is_llm(stage) ? shape.llm_stages : shape.encoder_stages);
    devices.insert(plan.at(stage).devices.begin(), plan.at(stage).devices.end());
  }
  shape.devices = static_cast<std::int32_t>(devices.size());
  return shape;
}

// The job's batches as the policies see them.
struct Material {
  PolicyQuestion question;
  std::vector<PipelineShape> shapes;  // Per pipeline.
  std::string costs;                  // `measured`, `computed`.
  std::size_t samples = 0;
  std::vector<std::string> policies;                  // Those to run.
  std::vector<std::string> warnings;                  // What the job says in vain.
  std::optional<scheduler::LayoutReason> sums;        // Where the job leaves them open.
  std::optional<engine::CorrectedProfile> corrected;  // Costs of devices that are not here.
};

constexpr const char* kCompared[] = {"random", "disttrain", "llm-only"};

// The policies to run: the three that everything is compared with, and those asked for.
Result<std::vector<std::string>> chosen_policies(const std::string& wanted) {
  const auto known = policies::policy_names();
  if (wanted == "all") return known;
  std::vector<std::string> chosen(std::begin(kCompared), std::end(kCompared));
  if (std::find(known.begin(), known.end(), wanted) == known.end()) {
    auto names = known;
    names.insert(names.begin(), "all");
    return Error{Errc::invalid_argument, "no balancing policy is called '" + wanted + "'",
                 "--policy", name_fix(wanted, names)};
  }
  if (std::find(chosen.begin(), chosen.end(), wanted) == chosen.end()) chosen.push_back(wanted);
  return chosen;
}

// Costs of the job's layers: measured here, or computed for a device that is not, whose name it
// then returns.
Result<std::string> use_costs(engine::JobSetup& setup, const std::string& cluster,
                              std::optional<engine::CorrectedProfile>& corrected,
                              Progress& progress) {
  if (cluster.empty()) {
    engine::ProfileOptions options;
    options.on_progress = measuring(progress);
    const auto obtained = engine::use_profile(setup, options);
    return obtained.ok() ? Result<std::string>("") : Result<std::string>(obtained.error());
  }
  // A device alone will do: stages of one device each.
  const bool counted = cluster.front() >= '0' && cluster.front() <= '9';
  const auto machines = parse_cluster(counted ? cluster : "1x1x" + cluster);
  if (!machines.ok()) return machines.error();
  const auto& device = machines.value().device;
  corrected = engine::corrected_profile(setup, device);
  auto costs = engine::planning_costs(setup, corrected->profile, device.memory);
  if (!costs.ok()) return std::move(costs).error();
  setup.costs = std::move(costs).value();
  return device.name;
}

// The job's layout. What the job leaves open of its sums is chosen before, as training does.
Result<ParallelPlan> place(engine::JobSetup& setup, const std::string& elsewhere,
                           std::optional<scheduler::LayoutReason>& sums) {
  const bool open = engine::leaves_sums_open(setup.job);
  const auto facts = open ? call_facts(setup.job.cluster, elsewhere) : scheduler::CallFacts{};
  if (open) sums = engine::settle_sums(setup, facts, "");
  auto plan = engine::make_parallel_plan(setup);
  if (!plan.ok() || !open || sums) return plan;
  auto chosen = engine::choose_sums(setup, facts, plan.value(), setup.costs->options);
  if (!chosen.ok()) return std::move(chosen).error();
  sums = std::move(chosen).value();
  return is_by_nccl(setup.model.sums) ? engine::make_parallel_plan(setup) : std::move(plan);
}

Result<Material> read_material(const BalanceArguments& arguments, Progress& progress) {
  const auto job = read_job_on_paper(arguments.job, true);
  if (!job.ok()) return job.error();
  auto policies = chosen_policies(arguments.policy);  // Its plug-ins are loaded now.
  if (!policies.ok()) return policies.error();
  const EndOnStalledRead reads(job.value().job);
  auto prepared = engine::prepare(job.value().job);
  if (!prepared.ok()) return prepared.error();
  auto& setup = prepared.value();
  Material material;
  material.policies = std::move(policies).value();
  material.warnings = warnings_of(job.value(), setup, /*elsewhere=*/false);  // Its own layout.
  if (setup.job.parallel.mode == job::LayoutMode::manual)  // Refused before anything is measured.
    if (auto placed = engine::make_parallel_plan(setup); !placed.ok()) return placed.error();
  const auto elsewhere = use_costs(setup, arguments.cluster, material.corrected, progress);
  if (!elsewhere.ok()) return elsewhere.error();
  if (material.corrected) warn_of_profile(job.value(), *material.corrected, material.warnings);
  progress.now("placing the layout");
  auto plan = place(setup, elsewhere.value(), material.sums);
  if (!plan.ok()) return std::move(plan).error();
  const auto& train = setup.job.train;
  const auto pipelines = plan.value().pipelines.size();
  if (train.microbatches * static_cast<std::int64_t>(pipelines) > train.global_batch_size)
    return Error{Errc::invalid_argument,
                 std::to_string(train.microbatches) + " microbatches for each of " +
                     std::to_string(pipelines) + " pipelines, but a batch has only " +
                     std::to_string(train.global_batch_size) + " samples",
                 "train.microbatches", "use fewer microbatches or a larger global_batch_size"};
  progress.now("reading the lengths of samples");
  engine::keep_lengths(setup);
  auto batches = engine::batch_shapes(setup, 0, arguments.steps);
  for (auto& note : engine::release_lengths(setup)) material.warnings.push_back(std::move(note));
  if (!batches.ok()) return std::move(batches).error();
  const auto options = engine::planner_options(setup, 0, 0);
  auto& question = material.question;
  question = {std::move(plan).value(), options.microbatching, setup.costs,
              std::move(batches).value()};
  question.options.seed = arguments.seed.value_or(question.options.seed);
  std::erase_if(question.batches, [](const auto& samples) { return samples.empty(); });
  if (question.batches.empty())
    return Error{Errc::bad_data,
                 "the first " + std::to_string(arguments.steps) + " batches hold no good sample",
                 "data.sources", "`troupe data check` names what is wrong with them"};
  for (const auto& samples : question.batches) material.samples += samples.size();
  material.costs = std::string(to_string(setup.costs->model.origin(setup.model.llm())));
  for (std::size_t p = 0; p < question.plan.pipelines.size(); ++p)
    material.shapes.push_back(shape_of(question.plan, PipelineId{p}));
  return material;
}

// Policies that have a plan, and those without one within the memory of a device.
struct Answers {
  std::vector<PolicyReport> reports;
  std::vector<std::pair<std::string, Error>> refused;
};

// Errors: as `report_policy`; infeasible only where it is about `wanted`, or about all.
Result<Answers> ask(const std::vector<std::string>& policies, const std::string& wanted,
                    const PolicyQuestion& question, Progress& progress) {
  Answers answers;
  for (const auto& policy : policies) {
    auto answered = report_policy(policy, question, [&](std::size_t batch) {
      progress.now("balancing by " + policy + ", batch " + std::to_string(batch + 1) + " of " +
                   std::to_string(question.batches.size()));
    });
    if (answered.ok())
      answers.reports.push_back(std::move(answered).value());
    else if (answered.error().code != Errc::infeasible || policy == wanted)
      return std::move(answered).error();
    else
      answers.refused.emplace_back(policy, answered.error());
  }
  if (answers.reports.empty()) return answers.refused.front().second;
  return answers;
}

Json spread_json(const balancer::Spread& spread) {
  return {{"mean_ms", spread.mean_ms}, {"std_ms", spread.std_ms}, {"max_ms", spread.max_ms}};
}

Json phase_json(const PhaseAnswer& phase) {
  Json json{{"phase", phase.name},
            {"mean_ms", phase.spread.mean_ms},
            {"std_ms", phase.spread.std_ms},
            {"max_ms", phase.spread.max_ms}};
  add_figures(phase.balance, phase.far_rows, json);
  return json;
}

Json answer_json(const PolicyReport& report, const PolicyAnswer& answer) {
  Json phases = Json::array();
  for (const auto& phase : answer.phases) phases.push_back(phase_json(phase));
  const auto encoder =
      report.encoders ? answer.phases[*report.encoders].spread : balancer::Spread{};
  return {{"microbatches", answer.microbatches},     {"encoder", spread_json(encoder)},
          {"llm", spread_json(answer.llm().spread)}, {"deferred", answer.deferred},
          {"rows_held_max", answer.rows_held_max},   {"step_ms", answer.step_ms},
          {"lower_bound_ms", answer.lower_bound_ms}, {"phases", std::move(phases)}};
}

Json policy_json(const PolicyQuestion& question, const PolicyReport& report) {
  Json batches = Json::array(), loads;
  for (const auto& answer : report.batches) batches.push_back(answer_json(report, answer));
  for (const auto& phase : report.all.phases) loads[phase.name] = phase.loads;
  Json entry{{"policy", report.policy}, {"all", answer_json(report, report.all)}};
  entry["batches"] = std::move(batches);
  entry["encoder_loads_ms"] = Json::array();
  if (report.encoders)
    entry["encoder_loads_ms"] = report.all.phases[*report.encoders].loads.front();
  entry["llm_loads_ms"] = report.all.llm().loads.front();
  entry["loads_ms"] = std::move(loads);
  entry["exchange"] = exchange_json(question.plan, question.options.exchange, report.exchange);
  return entry;
}

// `2 x (1 encoder + 1 llm stage), 1 x (...)`: pipelines by their stages, in order.
std::string shapes_text(const std::vector<PipelineShape>& shapes) {
  std::string text;
  for (std::size_t begin = 0, end = 0; begin < shapes.size(); begin = end) {
    const auto& shape = shapes[begin];
    while (end < shapes.size() && shapes[end] == shape) ++end;
    text += (begin > 0 ? ", " : "") + std::to_string(end - begin) + " x (" +
            std::to_string(shape.encoder_stages) + " encoder + " +
            std::to_string(shape.llm_stages) + " llm";
    if (shape.devices < shape.encoder_stages + shape.llm_stages)
      text +=
          " on " + std::to_string(shape.devices) + (shape.devices == 1 ? " device" : " devices");
    text += ")";
  }
  return text;
}

Json to_json(const Material& material, const Answers& answers) {
  const auto& question = material.question;
  Json policies = Json::array();
  for (const auto& report : answers.reports) policies.push_back(policy_json(question, report));
  Json refused = Json::array();
  for (const auto& [policy, why] : answers.refused)
    refused.push_back({{"policy", policy}, {"why", why.message}});
  Json reasons = Json::array();
  if (material.sums)
    reasons.push_back({{"choice", material.sums->choice}, {"why", material.sums->why}});
  const auto& first = answers.reports.front();
  Json encoders;
  if (first.encoders) encoders = first.all.phases[*first.encoders].name;
  Json shapes = Json::array();
  for (std::size_t p = 0; p < material.shapes.size(); ++p)
    shapes.push_back({{"encoder_stages", material.shapes[p].encoder_stages},
                      {"llm_stages", material.shapes[p].llm_stages},
                      {"devices", material.shapes[p].devices},
                      {"first_batch_samples", first.all.dealt[p]}});
  return {{"samples", material.samples},
          {"batches", question.batches.size()},
          {"microbatches", question.options.microbatches},
          {"pipelines", std::move(shapes)},
          {"schedule", question.options.schedule.name},
          {"costs", material.costs},
          {"corrections", corrections_json(material.corrected)},
          {"encoder_phase", std::move(encoders)},
          {"policies", std::move(policies)},
          {"refused", std::move(refused)},
          {"reasons", std::move(reasons)},
          {"warnings", material.warnings}};
}

void print_text(const Material& material, const Answers& answers) {
  const auto& question = material.question;
  std::printf("%zu samples in %zu batches, schedule %s, %s costs\n", material.samples,
              question.batches.size(), question.options.schedule.name.c_str(),
              material.costs.c_str());
  std::printf("%s", corrections_lines(material.corrected).c_str());
  std::printf("Pipelines by their stages: %s; %lld microbatches in each\n",
              shapes_text(material.shapes).c_str(),
              static_cast<long long>(question.options.microbatches));
  if (material.sums)
    std::printf("%s: %s\n", material.sums->choice.c_str(), material.sums->why.c_str());
  std::printf("\n");
  print_policies(answers.reports);
  for (const auto& [policy, why] : answers.refused)
    std::printf("No plan by %s: %s\n", policy.c_str(), why.message.c_str());
  print_evenness(answers.reports);
  print_exchange(question, answers.reports);
  print_pictures(answers.reports);
  print_warnings(material.warnings);
}

int balance(const BalanceArguments& arguments) {
  auto progress = std::make_optional<Progress>("reading the job");
  const auto material = read_material(arguments, *progress);
  if (!material.ok()) return progress.reset(), report(material.error());
  const auto answers =
      ask(material.value().policies, arguments.policy, material.value().question, *progress);
  progress.reset();
  if (!answers.ok()) return report(answers.error());
  if (arguments.json)
    std::cout << to_json(material.value(), answers.value()).dump(2) << '\n';
  else
    print_text(material.value(), answers.value());
  return kDone;
}

}  // namespace

void add_balance(Commands& commands) {
  auto arguments = std::make_shared<BalanceArguments>();
  auto* command = commands.add("balance", "Show what a balancing policy does to the data of a job",
                               [arguments] { return balance(*arguments); });
  arguments->job.add_to(*command);
  command
      ->add_option("--policy", arguments->policy,
                   "A policy, or `all`; random, disttrain and llm-only are shown beside it")
      ->required();
  command->add_option("--steps", arguments->steps, "Batches to look at, from the first (default 8)")
      ->check(CLI::Range(1, 100'000));
  command->add_option("--seed", arguments->seed, "Of policies that draw (default: the job's)");
  command
      ->add_option("--cluster", arguments->cluster,
                   "Computed costs of devices that are not here, as 4x8xH100-80G; the layout "
                   "stays the job's. Default: costs measured here")
      ->type_name("NxGxDEVICE");
  command->add_flag("--json", arguments->json, "Print one JSON object instead");
}

}  // namespace troupe::app
