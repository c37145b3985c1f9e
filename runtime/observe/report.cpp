#include "runtime/observe/report.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <set>

#include <nlohmann/json.hpp>

#include "runtime/files/read_stream.hpp"
#include "runtime/observe/report_words.hpp"
#include "runtime/observe/smoothing.hpp"

namespace troupe::observe {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::json;
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

std::optional<std::string> text_of(const fs::path& path) {
  files::ReadStream file(path);
  if (!file) return std::nullopt;
  return std::string{std::istreambuf_iterator<char>(file), {}};
}

void read_plan(RunRecord& run) {
  const auto text = text_of(run.folder / "plan.json");
  if (!text) return run.notes.push_back("The run recorded no layout: plan.json is missing.");
  auto plan = parse_plan(*text);
  if (plan.ok()) {
    run.plan = std::move(plan).value();
  } else {
    run.notes.push_back("plan.json cannot be read: " + plan.error().message + ".");
  }
}

void read_bad_samples(RunRecord& run) {
  files::ReadStream file(run.folder / "bad_samples.jsonl");
  std::string line;
  while (std::getline(file, line)) {
    const auto json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) {
      run.notes.push_back("A line of bad_samples.jsonl is cut.");
      continue;
    }
    const auto word = [&](const char* key) {
      return json.is_object() && json.contains(key) && json[key].is_string()
                 ? json[key].get<std::string>()
                 : std::string();
    };
    run.bad_samples.push_back({word("id"), word("reason")});
  }
}

// Values of steps after the first, where there are such.
std::vector<double> settled(const MetricsTable& metrics, const std::string& key) {
  std::vector<double> values;
  const auto* column = metrics.find(key);
  if (column == nullptr) return values;
  for (std::size_t i = column->size() > 1 ? 1 : 0; i < column->size(); ++i)
    if (std::isfinite((*column)[i])) values.push_back((*column)[i]);
  return values;
}

double mean(const std::vector<double>& values) {
  if (values.empty()) return kUnknown;
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double median(std::vector<double> values) {
  if (values.empty()) return kUnknown;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

// Of all steps, the first too: what was held once needed its memory.
double largest(const MetricsTable& metrics, const std::string& key) {
  double found = kUnknown;
  if (const auto* column = metrics.find(key))
    for (const double value : *column) found = std::fmax(found, value);
  return found;
}

// Of settled steps, each counted for as long as it took: what was done in all over the time in all.
double mean_over_time(const MetricsTable& metrics, const char* key) {
  const auto *values = metrics.find(key), *times = metrics.find("step_ms");
  if (values == nullptr || times == nullptr) return kUnknown;
  double sum = 0, ms = 0;
  for (std::size_t i = times->size() > 1 ? 1 : 0; i < times->size(); ++i) {
    if (!std::isfinite((*values)[i]) || !std::isfinite((*times)[i])) continue;
    sum += (*values)[i] * (*times)[i];
    ms += (*times)[i];
  }
  return ms > 0 ? sum / ms : kUnknown;
}

// Amount per second of the settled steps together: long steps count as long as they took.
double rate(const MetricsTable& metrics, const std::string& amount) {
  const auto *amounts = metrics.find(amount), *times = metrics.find("step_ms");
  if (amounts == nullptr || times == nullptr) return kUnknown;
  double sum = 0, ms = 0;
  for (std::size_t i = times->size() > 1 ? 1 : 0; i < times->size(); ++i) {
    if (!std::isfinite((*amounts)[i]) || !std::isfinite((*times)[i])) continue;
    sum += (*amounts)[i];
    ms += (*times)[i];
  }
  return ms > 0 ? 1000 * sum / ms : kUnknown;
}

// Where there are so many that single steps say little.
double smoothed_end(const MetricsTable& metrics, const std::string& key) {
  const auto* column = metrics.find(key);
  return column == nullptr || column->size() < kSmoothedFrom ? kUnknown : smoothed(*column).back();
}

double end_of(const MetricsTable& metrics, const std::string& key, bool last) {
  const auto* column = metrics.find(key);
  if (column == nullptr) return kUnknown;
  double found = kUnknown;
  for (const double value : *column) {
    if (!std::isfinite(value)) continue;
    found = value;
    if (!last) break;
  }
  return found;
}

// NaN: none.
double checkpoint_count(const RunRecord& run) {
  const auto count = std::count_if(run.events.begin(), run.events.end(),
                                   [](const auto& event) { return event.kind == "checkpoint"; });
  return count > 0 ? static_cast<double>(count) : kUnknown;
}

// Module groups of one replica, which is as even as can be.
void leave_out_even_groups(MetricsTable& metrics) {
  std::set<std::string> uneven;
  for (const auto& [key, values] : metrics.columns)
    if (const auto [group, name] = phase_of(key); name.starts_with("imbalance"))
      if (std::any_of(values.begin(), values.end(),
                      [](double value) { return std::isfinite(value) && value != 1; }))
        uneven.insert(group);
  std::erase_if(metrics.columns, [&](const auto& column) {
    const auto group = phase_of(column.first).group;
    return !group.empty() && !uneven.contains(group);
  });
}

// Columns under the names that the report knows, without those that say nothing.
void tidy(MetricsTable& metrics) {
  // Runs before the key had its present name know it by the old one, later ones by both. Loss on
  // held-out samples has as many names as there are programs that measure it.
  constexpr std::pair<const char*, const char*> kOtherNames[]{
      {"predicted_step_ms", "calibrated_step_ms"},
      {"eval_loss", "held_out_loss"},
      {"validation_loss", "held_out_loss"},
      {"val_loss", "held_out_loss"}};
  for (const auto& [other, name] : kOtherNames)
    if (auto column = metrics.columns.extract(other)) {
      column.key() = name;
      metrics.columns.insert(std::move(column));
    }
  // A step in whose time no checkpoint was completed says nothing about checkpoints.
  if (const auto column = metrics.columns.find("checkpoint_ms"); column != metrics.columns.end())
    std::replace(column->second.begin(), column->second.end(), 0.0, kUnknown);
  // Zeros alone say that nothing was predicted or measured.
  for (const auto* key : {"profile_step_ms", "calibrated_step_ms", "compute_ms"}) {
    const auto* column = metrics.find(key);
    if (column != nullptr &&
        std::all_of(column->begin(), column->end(), [](double value) { return value == 0; }))
      metrics.columns.erase(key);
  }
  leave_out_even_groups(metrics);
}

}  // namespace

Result<RunRecord> read_run(const fs::path& folder) {
  auto metrics = read_metrics(folder / "metrics.jsonl");
  if (!metrics.ok()) return metrics.error();
  RunRecord run;
  const auto clean = fs::absolute(folder).lexically_normal();
  run.name = (clean.has_filename() ? clean : clean.parent_path()).filename().string();
  run.folder = folder;
  run.metrics = std::move(metrics).value();
  tidy(run.metrics);
  if (run.metrics.last_line_cut)
    run.notes.push_back(
        "The last line of metrics.jsonl is cut, as a killed run leaves it; it is left out.");
  read_plan(run);
  run.resolved_job = text_of(folder / "resolved.toml").value_or("");
  if (run.resolved_job.empty()) run.notes.push_back("resolved.toml is missing.");
  read_bad_samples(run);
  if (auto facts = read_run_facts(folder); facts.ok()) {
    run.facts = std::move(facts).value();
  } else {
    run.notes.push_back(facts.error().code == Errc::not_found
                            ? "run.json is missing: when, where and by which version it ran is not "
                              "known."
                            : "run.json cannot be read.");
  }
  run.events = read_events(folder, run.metrics);
  run.layouts = read_layouts(run);
  return run;
}

std::vector<ReportFigure> report_figures(const RunRecord& run) {
  const auto& metrics = run.metrics;
  const auto of = [&](const char* key) { return settled(metrics, key); };
  const auto percent = [](double share) { return 100 * share; };
  std::vector<ReportFigure> all{
      {"steps", "Steps", static_cast<double>(metrics.steps.size()), ""},
      {"loss_first", "Loss, first step", end_of(metrics, "loss", false), ""},
      {"loss_last", "Loss, last step", end_of(metrics, "loss", true), ""},
      {"loss_smoothed_last", "Loss, smoothed, at the end", smoothed_end(metrics, "loss"), ""},
      {"held_out_loss_last", "Held-out loss, last", end_of(metrics, "held_out_loss", true), ""},
      {"tokens_per_s", "Throughput", rate(metrics, "tokens"), "tokens/s"},
      {"samples_per_s", "Throughput", rate(metrics, "samples"), "samples/s"},
      {"tflops_per_device_mean", "Model arithmetic per device",
       mean_over_time(metrics, "tflops_per_device"), "TFLOP/s"},
      {"mfu_percent_mean", "Model FLOPs utilization", percent(mean_over_time(metrics, "mfu")), "%"},
      {"step_ms_median", "Step time, median", median(of("step_ms")), "ms"},
      {"profile_step_ms_median", "Predicted by the profile, median", median(of("profile_step_ms")),
       "ms"},
      {"calibrated_step_ms_median", "Predicted with speeds measured in the run, median",
       median(of("calibrated_step_ms")), "ms"},
      {"bubble_percent_mean", "Bubble, mean", percent(mean(of("bubble"))), "%"},
      {"imbalance_mean", "Imbalance of stages, mean", mean(of("imbalance")), ""},
      {"imbalance_in_order_mean", "Imbalance of microbatches, in order",
       mean(of("imbalance_in_order")), ""},
      {"imbalance_planned_mean", "Imbalance of microbatches, balanced",
       mean(of("imbalance_planned")), ""},
      {"exchanged_percent_mean", "Steps planned with an exchange between encoders",
       percent(mean(of("exchanged"))), "%"},
      {"held_rows_max", "Rows held for deferral, most", largest(metrics, "held_rows"), ""},
      {"activation_megabytes_max", "Activations on a device, most",
       1e-6 * largest(metrics, "activation_bytes"), "MB"},
      {"plan_ms_mean", "Planning, mean", mean(of("plan_ms")), "ms"},
      {"plan_wait_ms_mean", "Waited for planning, mean", mean(of("plan_wait_ms")), "ms"},
      {"data_wait_ms_mean", "Waited for data, mean", mean(of("data_wait_ms")), "ms"},
      {"checkpoints", "Checkpoints", checkpoint_count(run), ""},
      {"checkpoint_ms_median", "Writing a checkpoint, median", median(of("checkpoint_ms")), "ms"},
      {"checkpoint_stall_ms_max", "Waited for a checkpoint, most",
       checkpoint_count(run) > 0 ? largest(metrics, "checkpoint_stall_ms") : kUnknown, "ms"},
      {"bad_samples", "Bad samples", static_cast<double>(run.bad_samples.size()), ""},
      {"nodes_last", "Nodes at the end", end_of(metrics, "nodes", true), ""},
      {"epoch_number_last", "Configuration at the end", end_of(metrics, "epoch_number", true), ""},
  };
  for (const auto& [key, values] : metrics.columns)
    if (!phase_of(key).group.empty()) {
      const auto words = key_words(key);
      const bool share = words.unit == "%";
      all.push_back({key + (share ? "_percent_mean" : "_mean"), words.text + ", mean",
                     words.factor * mean(of(key.c_str())), share ? "%" : ""});
    }
  std::erase_if(all, [](const ReportFigure& figure) { return std::isnan(figure.value); });
  return all;
}

std::vector<std::string> missing_figures(const RunRecord& run) {
  const auto& columns = run.metrics.columns;
  const auto any = [&](const char* part) {
    return std::any_of(columns.begin(), columns.end(), [&](const auto& column) {
      return column.first.find(part) != std::string::npos;
    });
  };
  std::vector<std::string> missing;
  for (const auto* key : {"loss", "tokens", "samples", "step_ms", "bubble", "imbalance", "plan_ms",
                          "plan_wait_ms", "data_wait_ms"})
    if (run.metrics.find(key) == nullptr) missing.push_back(key_words(key).text + ".");
  if (run.metrics.find("compute_ms") == nullptr)
    missing.push_back("What devices did with their time: computing, reducing, sending, waiting.");
  if (!any("imbalance_in_order")) missing.push_back("The imbalance before balancing.");
  if (!any("bytes")) missing.push_back("Anything about memory.");
  if (!any("profile_step_ms") && !any("calibrated_step_ms")) missing.push_back("Predicted times.");
  return missing;
}

}  // namespace troupe::observe
