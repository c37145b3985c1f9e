// `troupe profile`: measures the layers of a job on this machine, or computes them for another.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/commands.hpp"
#include "app/planning.hpp"
#include "app/progress.hpp"
#include "app/terminal.hpp"
#include "engine/nominal_profile.hpp"
#include "engine/profile_data.hpp"
#include "engine/profile_run.hpp"
#include "scheduler/cost_model.hpp"

namespace troupe::app {

namespace {

struct ProfileArguments {
  JobArguments job;
  engine::ProfileOptions options;
  std::string out;
  std::string cluster;
  std::vector<std::int32_t> tp{1}, cp{1};
  bool json = false;
};

/// What one call found out.
struct Findings {
  engine::ObtainedProfile obtained;
  bool computed = false;
  scheduler::CostModel costs;
  std::optional<engine::DataProfile> data;
  std::string data_problem;  ///< Why there is no data profile.
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

Result<Findings> find_out(const ProfileArguments& arguments) {
  const auto job = read_job_on_paper(arguments.job, true);
  if (!job.ok()) return job.error();
  auto setup = engine::prepare(job.value());
  if (!setup.ok()) return std::move(setup).error();
  auto obtained = obtain(setup.value(), arguments);
  if (!obtained.ok()) return std::move(obtained).error();
  auto costs = scheduler::CostModel::create(setup.value().model, obtained.value().profile);
  if (!costs.ok()) return std::move(costs).error();
  Findings findings{
      std::move(obtained).value(), !arguments.cluster.empty(), std::move(costs).value(), {}, {}};
  // The layers' profile is of use without the data, which may lie elsewhere.
  const Progress progress("reading the lengths of samples");
  auto data = engine::profile_data(setup.value());
  if (data.ok())
    findings.data = std::move(data).value();
  else
    findings.data_problem = data.error().message;
  return findings;
}

/// The kind whose worst curve is the worst of all; null where no size could be left out.
const scheduler::KindError* worst_of(const std::vector<scheduler::KindError>& errors) {
  const auto worst = std::max_element(
      errors.begin(), errors.end(),
      [](const auto& a, const auto& b) { return a.left_out.mean < b.left_out.mean; });
  return worst != errors.end() && worst->left_out.mean > 0 ? &*worst : nullptr;
}

std::vector<std::string> names_of(const std::vector<ModuleId>& modules, const ModelGraph& model) {
  std::vector<std::string> names;
  for (const auto module : modules) names.push_back(model.at(module).name);
  return names;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// Text.

void print_kinds(const Findings& findings) {
  const auto errors = findings.costs.errors();
  std::printf("\n%-26s %-3s %-3s %-9s %7s %10s %10s %10s %10s %9s %7s\n", "kind", "tp", "cp",
              "origin", "tokens", "forward", "input g.", "weight g.", "attention", "kept", "error");
  for (const auto& kind : findings.obtained.profile.profiles) {
    const auto error = std::find_if(errors.begin(), errors.end(), [&](const auto& entry) {
      return entry.kind == kind.kind && entry.parallelism == kind.parallelism;
    });
    for (std::size_t p = 0; p < kind.points.size(); ++p) {
      const auto& point = kind.points[p];
      // Sizes of every second power, and the last.
      if (p % 3 != 2 && p + 1 != kind.points.size()) continue;
      const bool last = p + 1 == kind.points.size();
      const auto& attention = point.attention;
      std::printf("%-26s %-3d %-3d %-9s %7lld %7.2f ms %7.2f ms %7.2f ms %7.2f ms %6.2f MB",
                  kind.kind.c_str(), kind.parallelism.tp, kind.parallelism.cp,
                  std::string(to_string(kind.origin)).c_str(), static_cast<long long>(point.tokens),
                  point.linear.forward_ms, point.linear.input_grad_ms, point.linear.weight_grad_ms,
                  attention.forward_ms + attention.input_grad_ms,
                  (point.linear.activation_bytes + attention.activation_bytes) / 1e6);
      if (last && error != errors.end())
        std::printf(" %6.1f%%  %s", 100 * error->left_out.mean, error->curve.c_str());
      std::printf("\n");
    }
  }
  std::printf(
      "error: on sizes left out of the fit, mean over sizes, of the worst curve: forward, input "
      "or\n"
      "       weight gradient, bytes kept, of linear parts or attention.\n");
  if (const auto* worst = worst_of(errors))
    std::printf("worst: %s of %s (%s) at tp %d, cp %d: %.1f %%, and %.1f %% at %.0f tokens\n",
                worst->curve.c_str(), worst->kind.c_str(),
                joined(names_of(worst->modules, findings.costs.graph())).c_str(),
                worst->parallelism.tp, worst->parallelism.cp, 100 * worst->left_out.mean,
                100 * worst->left_out.worst, worst->left_out.worst_at_tokens);
  const auto& kinds = findings.obtained.profile.profiles;
  if (std::any_of(kinds.begin(), kinds.end(),
                  [](const auto& kind) { return kind.origin == scheduler::CostOrigin::modelled; }))
    std::printf("modelled: %s at the speed of the node's link below.\n", engine::kModelledHow);
}

void print_lengths(const char* name, const engine::LengthDistribution& lengths) {
  if (lengths.count == 0) return;
  std::printf("%-26s mean %8.1f  std %8.1f  p50 %6lld  p95 %6lld  p99 %6lld  max %6lld\n", name,
              lengths.mean, lengths.deviation, static_cast<long long>(lengths.p50),
              static_cast<long long>(lengths.p95), static_cast<long long>(lengths.p99),
              static_cast<long long>(lengths.largest));
}

void print_data(const Findings& findings) {
  if (!findings.data) {
    std::printf("\ndata: not measured: %s\n", findings.data_problem.c_str());
    return;
  }
  const auto& data = *findings.data;
  std::printf("\ndata: %s of %s samples measured, %s bad, %.0f %% text only\n",
              with_commas(data.measured).c_str(), with_commas(data.records).c_str(),
              with_commas(data.bad).c_str(), 100 * data.text_only_share);
  for (const auto& encoder : data.encoders) {
    print_lengths((encoder.module + " rows per item").c_str(), encoder.item_rows);
    print_lengths((encoder.module + " rows per sample").c_str(), encoder.sample_rows);
  }
  print_lengths("llm tokens", data.llm_tokens);
  print_lengths("trained tokens", data.trained_tokens);
}

std::string text_of(const char* name, const scheduler::LinkSpeed& link) {
  char text[96];
  std::snprintf(text, sizeof text, "%s %.3f ms + bytes at %.1f GB/s", name, link.latency_ms,
                link.gigabytes_per_s);
  return text;
}

void print_text(const Findings& findings) {
  const auto& obtained = findings.obtained;
  const auto& speeds = obtained.profile.speeds;
  std::printf("device   %s\n", obtained.profile.device.c_str());
  if (obtained.reused)
    std::printf("reused   valid: same layers, device, software, dtype and threads\n");
  else if (findings.computed)
    std::printf("computed from documented peak numbers; nothing was measured\n");
  else
    std::printf("measured in %.1f s, because %s\n", obtained.measured_s, obtained.reason.c_str());
  if (!obtained.file.empty()) std::printf("file     %s\n", obtained.file.c_str());
  if (!obtained.measured_at.empty())
    std::printf("quiet    %.0f %% of the runs that count were disturbed, %lld repeated; %s\n",
                100 * obtained.disturbed_share, static_cast<long long>(obtained.repeated),
                obtained.measured_at.c_str());
  for (const auto& warning : obtained.warnings) std::printf("warning  %s\n", warning.c_str());
  print_kinds(findings);
  const std::string origin(to_string(speeds.origin));
  std::printf("\ngradient sums %.1f GB/s, AdamW %.0f M elements/s + %.3f ms a layer (%s)\n",
              speeds.reduce_gigabytes_per_s, speeds.optimizer_elements_per_s / 1e6,
              speeds.optimizer_group_ms, origin.c_str());
  std::printf("links (%s): %s, %s, %s\n", origin.c_str(), text_of("node", speeds.node).c_str(),
              text_of("machine", speeds.machine).c_str(),
              text_of("network", speeds.network).c_str());
  if (speeds.origin == scheduler::CostOrigin::measured)
    std::printf("  %s\n", engine::kMeasuredLinks);
  print_data(findings);
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
          {"text_only_share", data.text_only_share},
          {"encoders", std::move(encoders)},
          {"llm_tokens", json_of(data.llm_tokens)},
          {"trained_tokens", json_of(data.trained_tokens)}};
}

nlohmann::ordered_json json_of(const scheduler::KindError& error, const ModelGraph& model) {
  return {{"kind", error.kind},
          {"modules", names_of(error.modules, model)},
          {"tp", error.parallelism.tp},
          {"cp", error.parallelism.cp},
          {"curve", error.curve},
          {"fit_mean", error.fit.mean},
          {"left_out_mean", error.left_out.mean},
          {"left_out_worst", error.left_out.worst},
          {"left_out_worst_at_tokens", error.left_out.worst_at_tokens}};
}

nlohmann::ordered_json json_of(const Findings& findings) {
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
  const auto* worst = worst_of(found);
  json["worst_error"] =
      worst ? json_of(*worst, findings.costs.graph()) : nlohmann::ordered_json(nullptr);
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
    print_text(findings.value());
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
}

}  // namespace troupe::app
