// `troupe profile`: measures the layers of a job on this machine, or computes them for another.

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/commands.hpp"
#include "app/planning.hpp"
#include "app/profile_text.hpp"
#include "app/progress.hpp"
#include "app/stalled_read.hpp"
#include "app/terminal.hpp"
#include "engine/profiling/nominal_profile.hpp"
#include "engine/profiling/profile_data.hpp"
#include "engine/profiling/profile_run.hpp"
#include "engine/setup/kept_lengths.hpp"
#include "scheduler/cost/cost_model.hpp"

namespace troupe::app {

namespace {

struct ProfileArguments {
  JobArguments job;
  engine::ProfileOptions options;
  std::string out;
  std::string cluster;
  std::vector<std::int32_t> tp{1}, cp{1};
  bool json = false;
  bool verbose = false;
};

Result<engine::ObtainedProfile> obtain(const engine::JobSetup& setup,
                                       const ProfileArguments& arguments) {
  auto options = arguments.options;
  options.file = arguments.out;
  for (const auto tp : arguments.tp)
    for (const auto cp : arguments.cp)
      if (tp * cp > 1) options.degrees.push_back({tp, cp});
  if (arguments.cluster.empty()) {
    Progress progress("reading the profile");
    options.on_progress = measuring(progress);
    return engine::obtain_profile(setup, options);
  }
  const auto cluster = parse_cluster(arguments.cluster);
  if (!cluster.ok()) return cluster.error();
  engine::ObtainedProfile obtained;
  obtained.profile =
      engine::computed_profile(setup, cluster.value().device, engine::planned_degrees());
  obtained.reason = "computed from documented peak numbers";
  if (arguments.out.empty()) return obtained;
  obtained.file = arguments.out;
  auto key = engine::profile_key(setup);
  key.device = obtained.profile.device;
  key.software = "roofline";
  if (auto saved = engine::save_profile(obtained.file, {key, obtained.profile}); !saved.ok())
    return saved.error();
  return obtained;
}

Result<ProfileFindings> find_out(const ProfileArguments& arguments) {
  const auto job = read_job_on_paper(arguments.job, true);
  if (!job.ok()) return job.error();
  const EndOnStalledRead reads(job.value().job);
  auto setup = engine::prepare(job.value().job);
  if (!setup.ok()) return std::move(setup).error();
  auto obtained = obtain(setup.value(), arguments);
  if (!obtained.ok()) return std::move(obtained).error();
  auto costs = scheduler::CostModel::create(setup.value().model, obtained.value().profile);
  if (!costs.ok()) return std::move(costs).error();
  ProfileFindings findings;
  findings.obtained = std::move(obtained).value();
  findings.computed = !arguments.cluster.empty();
  findings.costs = std::move(costs).value();
  // The layers' profile is of use without the data, which may lie elsewhere.
  engine::keep_lengths(setup.value());
  const Progress progress("reading the lengths of samples");
  auto data = engine::profile_data(setup.value());
  if (data.ok())
    findings.data = std::move(data).value();
  else
    findings.data_problem = data.error().message;
  if (!findings.data) return findings;
  auto shapes = engine::draw_shapes(setup.value(), kSampleTimes, setup.value().job.job.seed);
  if (!shapes.ok()) return std::move(shapes).error();
  for (auto& note : engine::release_lengths(setup.value()))
    findings.obtained.warnings.push_back(std::move(note));
  auto times = scheduler::mean_sample(findings.costs, shapes.value());
  if (!times.ok()) return std::move(times).error();
  findings.sample = std::move(times).value();
  return findings;
}

// JSON.

nlohmann::ordered_json json_of(const engine::LengthDistribution& lengths) {
  auto bars = nlohmann::ordered_json::array();
  for (const auto& bar : lengths.histogram)
    bars.push_back({{"from", bar.from}, {"to", bar.to}, {"count", bar.count}});
  return {{"count", lengths.count},  {"mean", lengths.mean},        {"std", lengths.deviation},
          {"min", lengths.smallest}, {"p25", lengths.p25},          {"p50", lengths.p50},
          {"p75", lengths.p75},      {"p95", lengths.p95},          {"p99", lengths.p99},
          {"max", lengths.largest},  {"histogram", std::move(bars)}};
}

nlohmann::ordered_json json_of(const engine::DataProfile& data) {
  auto encoders = nlohmann::ordered_json::array();
  for (const auto& encoder : data.encoders)
    encoders.push_back({{"module", encoder.module},
                        {"sample_share", encoder.sample_share},
                        {"item_rows", json_of(encoder.item_rows)},
                        {"sample_rows", json_of(encoder.sample_rows)}});
  return {{"records", data.records},
          {"measured", data.measured},
          {"bad", data.bad},
          {"indexed", data.indexed},
          {"text_only_share", data.text_only_share},
          {"encoders", std::move(encoders)},
          {"llm_tokens", json_of(data.llm_tokens)},
          {"trained_tokens", json_of(data.trained_tokens)}};
}

nlohmann::ordered_json json_of(const scheduler::KindError& error, const ModelGraph& model) {
  return {{"kind", error.kind},
          {"modules", module_names(error.modules, model)},
          {"tp", error.parallelism.tp},
          {"cp", error.parallelism.cp},
          {"curve", error.curve},
          {"fit_mean", error.fit.mean},
          {"left_out_mean", error.left_out.mean},
          {"left_out_worst", error.left_out.worst},
          {"left_out_worst_at_tokens", error.left_out.worst_at_tokens}};
}

nlohmann::ordered_json json_of(const ProfileFindings& findings) {
  const auto& obtained = findings.obtained;
  const auto found = findings.costs.errors();
  auto errors = nlohmann::ordered_json::array();
  for (const auto& error : found) errors.push_back(json_of(error, findings.costs.graph()));
  nlohmann::ordered_json json{
      {"file", obtained.file.string()},
      {"reused", obtained.reused},
      {"reason", obtained.reason},
      {"measured_s", obtained.measured_s},
      {"measured_at", obtained.measured_at},
      {"disturbed_share", obtained.disturbed_share},
      {"repeated", obtained.repeated},
      {"warnings", obtained.warnings},
      {"profile", nlohmann::ordered_json::parse(engine::to_json({{}, obtained.profile}))},
      {"errors", std::move(errors)}};
  json["profile"].erase("key");
  const auto* worst = worst_kind(found);
  json["worst_error"] =
      worst ? json_of(*worst, findings.costs.graph()) : nlohmann::ordered_json(nullptr);
  const auto verdict = verdict_of(findings);
  json["verdict"] = {{"word", verdict.word}, {"why", verdict.why}};
  if (verdict.expected_error) json["verdict"]["expected_error"] = *verdict.expected_error;
  for (std::size_t m = 0; m < findings.sample.module_ms.size(); ++m)
    json["sample_ms"][findings.costs.graph().modules[m].name] = findings.sample.module_ms[m];
  if (findings.data)
    json["data"] = json_of(*findings.data);
  else
    json["data_problem"] = findings.data_problem;
  return json;
}

int profile(const ProfileArguments& arguments) {
  if (!(arguments.options.budget_s > 0))
    return report(usage_error("--budget is not above 0", "give seconds, for example --budget 30"));
  const auto findings = find_out(arguments);
  if (!findings.ok()) return report(findings.error());
  if (arguments.json)
    std::cout << json_of(findings.value()).dump() << '\n';
  else
    print_profile(findings.value(), arguments.verbose);
  return kDone;
}

}  // namespace

void add_profile(Commands& commands) {
  const auto arguments = std::make_shared<ProfileArguments>();
  auto* command = commands.add("profile", "Measure the layers of a job on this machine",
                               [arguments] { return profile(*arguments); });
  arguments->job.add_to(*command);
  command->add_option("--out", arguments->out, "Where the profile lies (default: runs/profiles)")
      ->type_name("FILE");
  command->add_option("--cluster", arguments->cluster,
                      "Compute a profile for devices that are not here: 4x8xH100-80G");
  command->add_option("--tp", arguments->tp, "Tensor-parallel degrees to profile too: 1,2,4")
      ->delimiter(',')
      ->check(CLI::Range(1, 64))
      ->allow_extra_args(false);
  command->add_option("--cp", arguments->cp, "Context-parallel degrees to profile too: 1,2")
      ->delimiter(',')
      ->check(CLI::Range(1, 64))
      ->allow_extra_args(false);
  command->add_flag("--force", arguments->options.force, "Measure even if a profile fits");
  command->add_option("--budget", arguments->options.budget_s, "Seconds to measure, about")
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->add_flag("-v,--verbose", arguments->verbose,
                    "Print every kind of layer, the links and all lengths too");
}

}  // namespace troupe::app
