#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "runtime/observe/chart.hpp"
#include "runtime/observe/html_page.hpp"
#include "runtime/observe/report.hpp"
#include "runtime/observe/timeline_page.hpp"
#include "runtime/observe/trace_names.hpp"

namespace troupe::observe {

namespace {

constexpr std::size_t kSamplesMax = 50;  // Rows of the table of bad samples.

std::string figures_html(const RunRecord& run) {
  std::string html = "<dl class=\"facts\">\n";
  for (const auto& each : report_figures(run)) {
    html += "<div><dt>" + html_text(each.words) + "</dt><dd>" + figure(each.value);
    if (!each.unit.empty()) html += " <small>" + html_text(each.unit) + "</small>";
    html += "</dd></div>\n";
  }
  return html + "</dl>\n";
}

std::string notes_html(const std::vector<std::string>& notes, std::string_view heading) {
  if (notes.empty()) return "";
  std::string html = "<div class=\"missing\"><p>" + html_text(heading) + "</p><ul>\n";
  for (const auto& note : notes) html += "<li>" + html_text(note) + "</li>\n";
  return html + "</ul></div>\n";
}

struct Curve {
  const char* key;
  const char* name;
};

// A chart and the keys it shows; a key that the metrics lack is left out, and so is a chart
// without any.
struct ChartPlan {
  const char* title;
  const char* unit;
  std::vector<Curve> curves;
  double factor = 1;
  bool from_zero = true;
};

const std::vector<ChartPlan>& chart_plans() {
  static const std::vector<ChartPlan> plans{
      {"Loss", "per trained token", {{"loss", "loss"}}, 1, false},
      {"Throughput", "tokens/s", {{"tokens_per_s", "tokens"}}},
      {"Throughput", "samples/s", {{"samples_per_s", "samples"}}},
      {"Step time",
       "ms; predicted by the profile alone, and calibrated: with speeds measured earlier in the "
       "run",
       {{"step_ms", "measured"},
        {"profile_step_ms", "by the profile"},
        {"calibrated_step_ms", "calibrated"}}},
      {"Bubble",
       "% of stage time",
       {{"bubble", "measured"}, {"predicted_bubble", "predicted"}},
       100},
      {"Imbalance of microbatches",
       "largest / mean work, predicted; auto may raise it where that shortens the step",
       {{"imbalance_planned", "after balancing"}, {"imbalance_in_order", "before balancing"}},
       1,
       false},
      {"Imbalance of stages", "largest / mean work, measured", {{"imbalance", "stages"}}, 1, false},
      {"Memory: activations",
       "MB on the fullest device",
       {{"activation_bytes", "measured"}, {"promised_activation_bytes", "promised by the plan"}},
       1e-6},
      {"Memory: held for deferral", "MB", {{"held_bytes", "rows that wait"}}, 1e-6},
      {"Rows held for deferral", "rows", {{"held_rows", "most at a time"}}},
      {"Planning and waiting",
       "ms",
       {{"plan_ms", "planning"},
        {"plan_wait_ms", "waited for it"},
        {"data_wait_ms", "waited for data"}}},
      {"Gradient norm", "", {{"grad_norm", "norm"}}},
      {"Learning rate", "", {{"lr", "rate"}}},
  };
  return plans;
}

bool constant(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [&](double value) {
    return value == values.front() || (std::isnan(value) && std::isnan(values.front()));
  });
}

// Samples per second, which the metrics do not hold.
MetricsTable with_samples_per_s(MetricsTable metrics) {
  const auto *samples = metrics.find("samples"), *times = metrics.find("step_ms");
  if (samples == nullptr || times == nullptr || metrics.columns.contains("samples_per_s"))
    return metrics;
  std::vector<double> rates;
  for (std::size_t i = 0; i < samples->size(); ++i)
    rates.push_back((*times)[i] > 0 ? 1000 * (*samples)[i] / (*times)[i] : NAN);
  metrics.columns.emplace("samples_per_s", std::move(rates));
  return metrics;
}

std::vector<double> scaled(std::vector<double> values, double factor) {
  for (auto& value : values) value *= factor;
  return values;
}

// Charts of keys that nobody planned for: a chart each, the unit taken from the end of the name.
std::string other_charts(const MetricsTable& metrics, const std::set<std::string>& shown) {
  std::string html;
  for (const auto& [key, values] : metrics.columns) {
    if (shown.contains(key)) continue;
    const bool memory = key.find("bytes") != std::string::npos;
    // What never changes is no curve; memory is always of interest.
    if (!memory && constant(values)) continue;
    const std::string unit = memory ? "MB" : key.ends_with("_ms") ? "ms" : "";
    html += chart_figure({(memory ? "Memory: " : "") + key,
                          unit,
                          metrics.steps,
                          {{key, scaled(values, memory ? 1e-6 : 1)}},
                          true});
  }
  return html;
}

std::string charts_html(const RunRecord& run) {
  const auto metrics = with_samples_per_s(run.metrics);
  std::set<std::string> shown;
  std::string html = "<h2>Steps</h2>\n<div class=\"charts\">\n";
  for (const auto& plan : chart_plans()) {
    Chart chart{plan.title, plan.unit, metrics.steps, {}, plan.from_zero};
    for (const auto& curve : plan.curves) {
      shown.insert(curve.key);
      if (const auto* values = metrics.find(curve.key))
        chart.series.push_back({curve.name, scaled(*values, plan.factor)});
    }
    if (!chart.series.empty()) html += chart_figure(chart);
  }
  return html + other_charts(metrics, shown) + "</div>\n";
}

std::string layers_of(const ParallelPlan& plan, const LayerRun& run) {
  const auto& module = plan.model.at(run.module);
  const auto count = static_cast<std::int32_t>(module.layers.size());
  std::string text = module.name;
  if (run.layers.begin == 0 && run.layers.end == count) return text + " (all)";
  return text + " " + std::to_string(run.layers.begin) + " to " +
         std::to_string(run.layers.end - 1);
}

std::int64_t elements_of(const ParallelPlan& plan, const Stage& stage) {
  std::int64_t count = 0;
  for (const auto& run : stage.runs)
    for (auto layer = run.layers.begin; layer < run.layers.end; ++layer) {
      const auto& spec = plan.model.at(run.module).layers[static_cast<std::size_t>(layer)];
      count += spec.parameter_elements + spec.constant_elements;
    }
  return count;
}

std::string layout_html(const RunRecord& run) {
  if (!run.plan) return "";
  const auto& plan = run.plan->plan;
  const auto names = stage_names(plan);
  std::string html =
      "<h2>Layout</h2>\n<p class=\"note\">Configuration " + std::to_string(run.plan->epoch_number) +
      ": " + std::to_string(plan.pipelines.size()) + " pipelines, " +
      std::to_string(plan.stages.size()) + " stages on " + std::to_string(plan.devices.size()) +
      " devices. Layers count from 0.</p>\n<div class=\"scroll\"><table><thead><tr>";
  for (const auto* head : {"Pipeline", "Stage", "Layers", "Place"})
    html += std::string("<th scope=\"col\" class=\"text\">") + head + "</th>";
  html += "<th scope=\"col\">Parameters, million</th></tr></thead>\n<tbody>\n";
  for (std::size_t i = 0; i < plan.stages.size(); ++i) {
    const auto& stage = plan.stages[i];
    std::string layers, place;
    for (const auto& run_of : stage.runs)
      layers += (layers.empty() ? "" : ", ") + layers_of(plan, run_of);
    for (const auto device : stage.devices) {
      const auto& slot = plan.devices[device.index()];
      place += (place.empty() ? "node " : "; node ") + std::to_string(slot.node.value) +
               ", device " + std::to_string(slot.local_index);
    }
    html += "<tr><td class=\"text\">" + std::to_string(stage.pipeline.value) +
            "</td><th scope=\"row\">" + html_text(names[i]) + "</th><td class=\"text\">" +
            html_text(layers) + "</td><td class=\"text\">" + html_text(place) + "</td><td>" +
            figure(std::round(static_cast<double>(elements_of(plan, stage)) / 1e3) / 1e3) +
            "</td></tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string samples_html(const RunRecord& run) {
  std::string html = "<h2>Bad samples</h2>\n";
  if (run.bad_samples.empty()) return html + "<p>None: every sample could be decoded.</p>\n";
  const auto shown = std::min(run.bad_samples.size(), kSamplesMax);
  html += "<p class=\"note\">" + std::to_string(run.bad_samples.size()) + " were not trained";
  if (shown < run.bad_samples.size())
    html += "; the first " + std::to_string(shown) + " of bad_samples.jsonl";
  html +=
      ".</p>\n<div class=\"scroll\"><table><thead><tr><th scope=\"col\" class=\"text\">Sample"
      "</th><th scope=\"col\" class=\"text\">Why</th></tr></thead>\n<tbody>\n";
  for (std::size_t i = 0; i < shown; ++i)
    html += "<tr><th scope=\"row\">" + html_text(run.bad_samples[i].id) +
            "</th><td class=\"text\">" + html_text(run.bad_samples[i].why) + "</td></tr>\n";
  return html + "</tbody></table></div>\n";
}

std::string job_html(const RunRecord& run) {
  if (run.resolved_job.empty()) return "";
  return "<h2>Job</h2>\n<details><summary>Every value and where it came from "
         "(resolved.toml)</summary>\n<pre>" +
         html_text(run.resolved_job) + "</pre></details>\n";
}

}  // namespace

std::string report_page(const RunRecord& run, const std::vector<Timeline>& timelines,
                        const std::string& no_timeline) {
  std::string body = figures_html(run);
  body += notes_html(run.notes, "About this run folder:");
  body += charts_html(run);
  body += notes_html(missing_figures(run), "What this run did not record:");
  int number = 0;
  for (const auto& timeline : timelines) body += timeline_section(timeline, number++);
  if (timelines.empty())
    body += "<h2>Timeline</h2>\n<p class=\"missing\">" + html_text(no_timeline) + "</p>\n";
  body += layout_html(run) + samples_html(run) + job_html(run);
  return html_page("Run " + run.name, run.folder.string(), body);
}

}  // namespace troupe::observe
