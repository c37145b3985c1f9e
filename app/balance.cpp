// `troupe balance`: what a balancing policy does to the data of a job.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/balance/policy_report.hpp"
#include "app/commands.hpp"
#include "app/planning.hpp"
#include "app/terminal.hpp"
#include "engine/nominal_profile.hpp"
#include "engine/profile_data.hpp"
#include "engine/profile_run.hpp"
#include "runtime/job/load_job.hpp"
#include "runtime/vocabulary/nearest_word.hpp"
#include "scheduler/predicted_costs.hpp"

namespace troupe::app {

namespace {

using Json = nlohmann::ordered_json;

struct BalanceArguments {
  JobArguments job;
  std::string policy;
  std::string cluster;  // Empty: this machine, measured.
  std::int64_t steps = 8;
  std::uint64_t seed = 0;
  bool json = false;
};

// The job's batches as the policies see them.
struct Material {
  PolicyQuestion question;
  std::string costs;  // `measured`, `computed`.
  std::size_t samples = 0;
};

constexpr const char* kCompared[] = {"random", "disttrain", "llm-only"};
constexpr std::size_t kBarsMax = 32;  // Microbatches in the picture.

// The policies to run: the three that everything is compared with, and those asked for.
Result<std::vector<std::string>> chosen_policies(const std::string& wanted) {
  const auto known = balancer::policy_names();
  if (wanted == "all") return known;
  std::vector<std::string> chosen(std::begin(kCompared), std::end(kCompared));
  if (std::find(known.begin(), known.end(), wanted) == known.end()) {
    const auto nearest = nearest_word(wanted, known);
    std::string all = "all";
    for (const auto& name : known) all += ", " + name;
    return Error{Errc::invalid_argument, "no balancing policy is called '" + wanted + "'",
                 "--policy", nearest.empty() ? "one of " + all : "did you mean `" + nearest + "`?"};
  }
  if (std::find(chosen.begin(), chosen.end(), wanted) == chosen.end()) chosen.push_back(wanted);
  return chosen;
}

Result<scheduler::CostModel> cost_model(const engine::JobSetup& setup, const std::string& cluster) {
  scheduler::Profile profile;
  if (cluster.empty()) {
    auto obtained = engine::obtain_profile(setup);
    if (!obtained.ok()) return std::move(obtained).error();
    profile = std::move(obtained).value().profile;
  } else {
    // A device alone will do: stages of one device each.
    const bool counted = cluster.front() >= '0' && cluster.front() <= '9';
    const auto machines = parse_cluster(counted ? cluster : "1x1x" + cluster);
    if (!machines.ok()) return machines.error();
    profile = engine::computed_profile(setup, machines.value().device);
  }
  return scheduler::CostModel::create(setup.model, profile);
}

// Stages before and from the llm on. A stage with layers of both counts for the llm.
scheduler::ModulePipeline shape_of(const ModelGraph& model, const ParallelPlan& plan,
                                   const Pipeline& pipeline) {
  scheduler::ModulePipeline shape{.encoder_stages = 0, .llm_stages = 0};
  for (const auto stage : pipeline.stages) {
    const auto& runs = plan.stages[stage.index()].runs;
    const bool llm = std::any_of(runs.begin(), runs.end(),
                                 [&](const auto& run) { return run.module == model.llm(); });
    ++(llm ? shape.llm_stages : shape.encoder_stages);
  }
  shape.encoder_stages = std::max(1, shape.encoder_stages);
  shape.freeze_encoder = std::all_of(
      model.modules.begin(), model.modules.end(),
      [](const auto& module) { return module.freeze || module.kind == ModuleKind::llm; });
  shape.freeze_llm = model.at(model.llm()).freeze;
  return shape;
}

// A batch spread over the pipelines.
Result<std::vector<PipelineBatch>> spread(const std::vector<SampleShape>& shapes,
                                          const scheduler::CostModel& costs,
                                          const std::vector<scheduler::ModulePipeline>& pipelines,
                                          std::int64_t microbatches) {
  const auto predicted = scheduler::sample_workloads(costs, shapes);
  if (!predicted.ok()) return predicted.error();
  std::vector<balancer::Workload> work;
  for (const auto& sample : predicted.value())
    work.push_back({sample.encoder_forward_ms, sample.llm_forward_ms});
  std::vector<std::int64_t> rows;
  for (const auto& shape : shapes) {
    rows.push_back(0);
    for (const auto& media : shape.media) rows.back() += shape.output_rows(media.module);
  }
  return spread_batch(work, rows, pipelines, microbatches);
}

Result<Material> read_material(const BalanceArguments& arguments) {
  const auto loaded = job::load_job(arguments.job.file, arguments.job.all());
  if (!loaded.ok()) return loaded.error();
  const auto prepared = engine::prepare(loaded.value().job);
  if (!prepared.ok()) return prepared.error();
  const auto& setup = prepared.value();
  const auto plan = engine::make_parallel_plan(setup);
  if (!plan.ok()) return plan.error();
  const auto& train = setup.job.train;
  const auto pipelines = plan.value().pipelines.size();
  if (train.microbatches * static_cast<std::int64_t>(pipelines) > train.global_batch_size)
    return Error{Errc::invalid_argument,
                 std::to_string(train.microbatches) + " microbatches for each of " +
                     std::to_string(pipelines) + " pipelines, but a batch has only " +
                     std::to_string(train.global_batch_size) + " samples",
                 "train.microbatches", "use fewer microbatches or a larger global_batch_size"};
  const auto batches = engine::batch_shapes(setup, 0, arguments.steps);
  if (!batches.ok()) return batches.error();
  const auto costs = cost_model(setup, arguments.cluster);
  if (!costs.ok()) return costs.error();
  Material material;
  auto& question = material.question;
  for (const auto& pipeline : plan.value().pipelines)
    question.shapes.push_back(shape_of(setup.model, plan.value(), pipeline));
  question.schedule = setup.job.scheduler.schedule;
  question.options.microbatches = train.microbatches;
  question.options.seed = arguments.seed;
  question.options.evaluations_max = setup.job.balancer.evaluations;
  for (const auto& shapes : batches.value()) {
    if (shapes.empty()) continue;
    auto batch = spread(shapes, costs.value(), question.shapes, train.microbatches);
    if (!batch.ok()) return std::move(batch).error();
    question.batches.push_back(std::move(batch).value());
    material.samples += shapes.size();
  }
  if (question.batches.empty())
    return Error{Errc::bad_data,
                 "the first " + std::to_string(arguments.steps) + " batches hold no good sample",
                 "data.sources", "`troupe data check` names what is wrong with them"};
  material.costs = std::string(to_string(costs.value().origin(setup.model.llm())));
  return material;
}

double gap_percent(const PolicyAnswer& answer) {
  return answer.lower_bound_ms > 0 ? 100 * (answer.step_ms / answer.lower_bound_ms - 1) : 0;
}

Json spread_json(const balancer::Spread& spread) {
  return {{"mean_ms", spread.mean_ms}, {"std_ms", spread.std_ms}, {"max_ms", spread.max_ms}};
}

Json answer_json(const PolicyAnswer& answer) {
  return {{"encoder", spread_json(answer.encoder)},
          {"llm", spread_json(answer.llm)},
          {"deferred", answer.deferred},
          {"rows_held_max", answer.rows_held_max},
          {"step_ms", answer.step_ms},
          {"lower_bound_ms", answer.lower_bound_ms}};
}

// `2 x (1 encoder + 1 llm), 1 x (...)`: pipelines by their stages, in order.
std::string shapes_text(const std::vector<scheduler::ModulePipeline>& shapes) {
  std::string text;
  for (std::size_t begin = 0, end = 0; begin < shapes.size(); begin = end) {
    while (end < shapes.size() && shapes[end].encoder_stages == shapes[begin].encoder_stages &&
           shapes[end].llm_stages == shapes[begin].llm_stages)
      ++end;
    text += (begin > 0 ? ", " : "") + std::to_string(end - begin) + " x (" +
            std::to_string(shapes[begin].encoder_stages) + " encoder + " +
            std::to_string(shapes[begin].llm_stages) + " llm)";
  }
  return text;
}

// Microbatches per pipeline in the first batch: unequal pipelines get unequal numbers.
std::string microbatches_text(const std::vector<PipelineBatch>& pipelines) {
  std::string text;
  for (std::size_t p = 0; p < std::min(kBarsMax, pipelines.size()); ++p)
    text += (p > 0 ? ", " : "") + std::to_string(pipelines[p].microbatches);
  return pipelines.size() > kBarsMax ? text + ", ..." : text;
}

Json to_json(const Material& material, const std::vector<PolicyReport>& reports) {
  const auto& question = material.question;
  Json policies = Json::array();
  for (const auto& report : reports) {
    Json batches = Json::array();
    for (const auto& answer : report.batches) batches.push_back(answer_json(answer));
    Json entry{{"policy", report.policy}, {"all", answer_json(report.all)}};
    entry["batches"] = std::move(batches);
    entry["encoder_loads_ms"] = report.all.encoder_loads;
    entry["llm_loads_ms"] = report.all.llm_loads;
    policies.push_back(std::move(entry));
  }
  Json shapes = Json::array();
  for (std::size_t p = 0; p < question.shapes.size(); ++p)
    shapes.push_back({{"encoder_stages", question.shapes[p].encoder_stages},
                      {"llm_stages", question.shapes[p].llm_stages},
                      {"first_batch_samples", question.batches.front()[p].work.size()},
                      {"first_batch_microbatches", question.batches.front()[p].microbatches}});
  return {{"samples", material.samples},
          {"batches", question.batches.size()},
          {"microbatches", question.options.microbatches},
          {"pipelines", std::move(shapes)},
          {"schedule", question.schedule},
          {"costs", material.costs},
          {"policies", std::move(policies)}};
}

// One bar per microbatch, eight heights; full height is the largest of all that are compared.
std::string bars(const std::vector<double>& loads, double largest) {
  static constexpr const char* kHeights[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::string text;
  for (std::size_t i = 0; i < std::min(kBarsMax, loads.size()); ++i)
    text += kHeights[largest > 0 ? static_cast<int>(8 * loads[i] / largest + 0.5) : 0];
  return text;
}

void print_pictures(const std::vector<PolicyReport>& reports) {
  double encoder = 0, llm = 0;
  for (const auto& report : reports) {
    for (const double ms : report.all.encoder_loads) encoder = std::max(encoder, ms);
    for (const double ms : report.all.llm_loads) llm = std::max(llm, ms);
  }
  std::printf("\nMicrobatches of the first batch's first pipeline, in order of execution:\n");
  for (const auto& report : reports) {
    std::printf("  %-18s encoder |%s|\n", report.policy.c_str(),
                bars(report.all.encoder_loads, encoder).c_str());
    std::printf("  %-18s     llm |%s|\n", "", bars(report.all.llm_loads, llm).c_str());
  }
}

// Four digits or so, whatever the size.
std::string ms_text(double ms) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", ms >= 1000 ? 0 : ms >= 100 ? 1 : ms >= 1 ? 2 : 4, ms);
  return text;
}

void print_row(const std::string& name, const PolicyAnswer& answer) {
  std::printf("%-18s %9s %9s %9s %9s %9s %9s %9lld %10lld %9s %7.2f%%\n", name.c_str(),
              ms_text(answer.encoder.mean_ms).c_str(), ms_text(answer.encoder.std_ms).c_str(),
              ms_text(answer.encoder.max_ms).c_str(), ms_text(answer.llm.mean_ms).c_str(),
              ms_text(answer.llm.std_ms).c_str(), ms_text(answer.llm.max_ms).c_str(),
              static_cast<long long>(answer.deferred), static_cast<long long>(answer.rows_held_max),
              ms_text(answer.step_ms).c_str(), gap_percent(answer));
}

void print_table(const std::vector<PolicyReport>& reports) {
  std::printf("%-18s %29s %29s %9s %10s %18s\n", "", "encoder microbatch, ms", "llm microbatch, ms",
              "samples", "rows held", "simulated step");
  std::printf("%-18s %9s %9s %9s %9s %9s %9s %9s %10s %9s %8s\n", "policy", "mean", "std", "max",
              "mean", "std", "max", "deferred", "at most", "ms", "above");
  for (const auto& report : reports) print_row(report.policy, report.all);
  std::printf(
      "\nForward times; std, step: means over batches. `above`: over the longest stage's work and "
      "its shortest way in and out.\n");
  const auto least = std::min_element(reports.begin(), reports.end(), [](auto& a, auto& b) {
    return a.all.step_ms < b.all.step_ms;
  });
  const double random_ms = reports.front().all.step_ms;
  if (random_ms > 0)
    std::printf("Shortest steps: %s, %.1f %% below %s.\n", least->policy.c_str(),
                100 * (1 - least->all.step_ms / random_ms), reports.front().policy.c_str());
  if (reports.size() > 4) return;
  std::printf("\n%s, batch by batch:\n", reports.back().policy.c_str());
  for (std::size_t b = 0; b < reports.back().batches.size(); ++b)
    print_row("  batch " + std::to_string(b), reports.back().batches[b]);
}

void print_text(const Material& material, const std::vector<PolicyReport>& reports) {
  const auto& question = material.question;
  std::printf("%zu samples in %zu batches, schedule %s, %s costs\n", material.samples,
              question.batches.size(), question.schedule.c_str(), material.costs.c_str());
  std::printf("Pipelines by their stages: %s; microbatches in the first step: %s\n\n",
              shapes_text(question.shapes).c_str(),
              microbatches_text(question.batches.front()).c_str());
  print_table(reports);
  print_pictures(reports);
}

int balance(const BalanceArguments& arguments) {
  const auto policies = chosen_policies(arguments.policy);
  if (!policies.ok()) return report(policies.error());
  const auto material = read_material(arguments);
  if (!material.ok()) return report(material.error());
  std::vector<PolicyReport> reports;
  for (const auto& policy : policies.value()) {
    auto answered = report_policy(policy, material.value().question);
    if (!answered.ok()) return report(answered.error());
    reports.push_back(std::move(answered).value());
  }
  if (arguments.json)
    std::cout << to_json(material.value(), reports).dump(2) << '\n';
  else
    print_text(material.value(), reports);
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
  command->add_option("--seed", arguments->seed, "Of policies that draw (default 0)");
  command
      ->add_option("--cluster", arguments->cluster,
                   "Computed costs of devices that are not here, as 4x8xH100-80G; the layout "
                   "stays the job's. Default: costs measured here")
      ->type_name("NxGxDEVICE");
  command->add_flag("--json", arguments->json, "Print one JSON object instead");
}

}  // namespace troupe::app
