#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "runtime/observe/chart.hpp"
#include "runtime/observe/html_page.hpp"
#include "runtime/observe/report_parts.hpp"
#include "runtime/observe/report_words.hpp"
#include "runtime/observe/smoothing.hpp"

namespace troupe::observe {

namespace {

struct Curve {
  std::string key;
  const char* name;
};

// A chart and the keys it shows; a key that the metrics lack is left out, and so is a chart
// without any.
struct ChartPlan {
  std::string title;
  const char* unit;
  std::vector<Curve> curves;
  double factor = 1;
  bool from_zero = true;
  bool logarithmic = false;
};

const std::vector<ChartPlan>& leading_plans() {
  static const std::vector<ChartPlan> plans{
      {"Loss",
       "per trained token",
       {{"loss", "each step"}, {"held_out_loss", "held-out samples"}},
       1,
       false,
       true},
      {"Throughput", "tokens/s", {{"tokens_per_s", "each step"}}},
  };
  return plans;
}

const std::vector<ChartPlan>& further_plans() {
  static const std::vector<ChartPlan> plans{
      {"Throughput", "samples/s", {{"samples_per_s", "samples"}}},
      {"Model arithmetic per device", "TFLOP/s", {{"tflops_per_device", "devices"}}},
      {"Model FLOPs utilization (MFU)", "% of a device's peak", {{"mfu", "devices"}}, 100},
      {"Step time",
       "ms; predicted by the profile alone, and calibrated: with speeds measured earlier in the "
       "run",
       {{"step_ms", "measured"},
        {"profile_step_ms", "by the profile"},
        {"calibrated_step_ms", "calibrated"}},
       1,
       true,
       true},
      {"Bubble", "% of stage time", {{"bubble", "measured"}}, 100},
      {"Imbalance of microbatches",
       "largest / mean work, predicted; auto may raise it where that shortens the step",
       {{"imbalance_planned", "after balancing"}, {"imbalance_in_order", "before balancing"}},
       1,
       false},
      {"Imbalance of stages", "largest / mean work, measured", {{"imbalance", "stages"}}, 1, false},
      {"Memory: activations",
       "MB on the fullest device",
       {{"activation_bytes", "measured"},
        {"promised_activation_bytes", "promised by the plan"},
        {"offloaded_bytes", "in host memory"}},
       1e-6},
      {"Memory: held for deferral", "MB", {{"held_bytes", "rows that wait"}}, 1e-6},
      {"Rows held for deferral", "rows", {{"held_rows", "most at a time"}}},
      {"Planning and waiting",
       "ms",
       {{"plan_ms", "planning"},
        {"plan_wait_ms", "waited for it"},
        {"data_wait_ms", "waited for data"}}},
      {"Checkpoints",
       "ms",
       {{"checkpoint_ms", "written in"}, {"checkpoint_stall_ms", "a step waited"}}},
      {"Gradient norm", "before clipping", {{"grad_norm", "norm"}}, 1, true, true},
      {"Learning rate", "", {{"lr", "rate"}}},
  };
  return plans;
}

// Two charts for each module group: how evenly its replicas work, and what leaves its node.
std::vector<ChartPlan> phase_plans(const MetricsTable& metrics) {
  std::vector<ChartPlan> plans;
  for (const auto& [key, values] : metrics.columns) {
    const auto [group, name] = phase_of(key);
    if (name != "imbalance") continue;
    const std::string of = "phases." + group;
    plans.push_back({"Imbalance of replicas: " + group,
                     "largest / mean work, predicted but for the measured one",
                     {{key, "measured"},
                      {of + ".imbalance_planned", "as planned"},
                      {of + ".imbalance_drawn", "as the samples came"},
                      {of + ".imbalance_bound", "no deal is more even"}},
                     1,
                     false});
    plans.push_back({"Rows to another node: " + group,
                     "% of the rows for the llm",
                     {{of + ".rows_between_nodes", "as planned"},
                      {of + ".rows_between_nodes_bound", "no even deal sends fewer"}},
                     100});
  }
  return plans;
}

bool constant(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [&](double value) {
    return value == values.front() || (std::isnan(value) && std::isnan(values.front()));
  });
}

// Rates that the metrics of older runs, or of any, do not hold.
MetricsTable with_rates(MetricsTable metrics) {
  for (const auto& [key, amount] :
       {std::pair{"samples_per_s", "samples"}, std::pair{"tokens_per_s", "tokens"}}) {
    const auto *amounts = metrics.find(amount), *times = metrics.find("step_ms");
    if (amounts == nullptr || times == nullptr || metrics.columns.contains(key)) continue;
    std::vector<double> rates;
    for (std::size_t i = 0; i < amounts->size(); ++i)
      rates.push_back((*times)[i] > 0 ? 1000 * (*amounts)[i] / (*times)[i] : NAN);
    metrics.columns.emplace(key, std::move(rates));
  }
  return metrics;
}

std::vector<double> scaled(std::vector<double> values, double factor) {
  for (auto& value : values) value *= factor;
  return values;
}

// Measured every so many steps, as held-out loss is.
bool is_sparse(const std::vector<double>& values) {
  const auto finite = std::count_if(values.begin(), values.end(),
                                    [](double value) { return std::isfinite(value); });
  return 2 * finite < std::ssize(values);
}

// The curves of a plan that the metrics have.
Chart chart_of(const ChartPlan& plan, const MetricsTable& metrics) {
  Chart chart{plan.title, plan.unit, metrics.steps, {}, plan.from_zero, plan.logarithmic};
  for (const auto& curve : plan.curves)
    if (const auto* values = metrics.find(curve.key))
      chart.series.push_back(
          {curve.name, scaled(*values, plan.factor), SeriesLook::line, is_sparse(*values), ""});
  return chart;
}

constexpr const char* kEachStep = "each step";

// Draws each curve faintly and its mean above it, where there are `from` steps or more.
void add_means(Chart& chart, std::size_t from) {
  if (chart.x.size() < from) return;
  if (chart.series.size() == 1) chart.series.front().name = kEachStep;
  std::vector<ChartSeries> pairs;
  for (auto& series : chart.series) {
    ChartSeries mean{series.name == kEachStep ? "smoothed" : series.name, smoothed(series.y),
                     SeriesLook::smoothed};
    const bool sparse = series.sparse;
    if (!sparse) {
      series.look = SeriesLook::faint;
      if (series.name != kEachStep) series.name += ", each step";
    }
    pairs.push_back(std::move(series));
    if (!sparse) pairs.push_back(std::move(mean));
  }
  chart.series = std::move(pairs);
}

std::string leading_chart(const ChartPlan& plan, const MetricsTable& metrics,
                          const std::vector<ChartMark>& marks) {
  auto chart = chart_of(plan, metrics);
  if (chart.series.empty()) return "";
  chart.large = true;
  chart.marks = marks;
  add_means(chart, kSmoothedFrom);
  return chart_figure(chart);
}

// A part of a step's time: its key, what a reader calls it, how it is painted.
struct Part {
  const char* key;
  const char* name;
  const char* paint;
};
constexpr Part kParts[]{
    {"compute_ms", "computing", "k-forward"},
    {"update_ms", "reducing gradients, optimizer", "k-reduce"},
    {"transfer_ms", "sending", "k-transfer"},
    {"offload_ms", "activations and moments to host memory and back", "k-offload"},
    {"wait_ms", "waiting for other stages", "k-wait"},
    {"data_wait_ms", "waiting for data", "k-data"},
    {"plan_wait_ms", "waiting for planning", "k-plan"},
};

std::vector<double> column_or_zeros(const MetricsTable& metrics, const char* key) {
  const auto* column = metrics.find(key);
  return column != nullptr ? *column : std::vector<double>(metrics.steps.size(), 0);
}

// What devices did, as recorded. Of runs that did not record it, the bubble tells how much of what
// was not waited for they stood idle.
std::vector<ChartSeries> time_parts(const MetricsTable& metrics) {
  std::vector<ChartSeries> parts;
  if (metrics.find("compute_ms") != nullptr || metrics.find("bubble") == nullptr) {
    for (const auto& part : kParts)
      if (const auto* column = metrics.find(part.key))
        parts.push_back({part.name, *column, SeriesLook::line, false, part.paint});
    return parts;
  }
  const auto step = column_or_zeros(metrics, "step_ms"), bubble = *metrics.find("bubble");
  const auto data = column_or_zeros(metrics, "data_wait_ms"),
             plan = column_or_zeros(metrics, "plan_wait_ms");
  std::vector<double> busy, idle;
  for (std::size_t i = 0; i < step.size(); ++i) {
    const double rest = std::max(step[i] - data[i] - plan[i], 0.0);
    busy.push_back(rest * (1 - bubble[i]));
    idle.push_back(rest * bubble[i]);
  }
  parts.push_back({"stages at work", busy, SeriesLook::line, false, "k-forward"});
  parts.push_back({"stages idle (bubble)", idle, SeriesLook::line, false, "k-wait"});
  parts.push_back({"waiting for data", data, SeriesLook::line, false, "k-data"});
  parts.push_back({"waiting for planning", plan, SeriesLook::line, false, "k-plan"});
  return parts;
}

// What no part accounts for: between one step's end and the next one's begin.
ChartSeries remaining_time(const std::vector<double>& step_ms,
                           const std::vector<ChartSeries>& parts) {
  auto rest = step_ms;
  for (const auto& part : parts)
    for (std::size_t i = 0; i < rest.size(); ++i)
      if (std::isfinite(part.y[i])) rest[i] -= part.y[i];
  for (auto& value : rest) value = std::max(value, 0.0);
  return {parts.empty() ? "the step" : "between steps, and all else", std::move(rest),
          SeriesLook::line, false, "k-other"};
}

std::string time_chart(const MetricsTable& metrics) {
  const auto* step_ms = metrics.find("step_ms");
  // The first step also warms up and may take as long as all others.
  if (step_ms == nullptr || step_ms->size() < 3) return "";
  Chart chart{"Where a step's time goes", "ms, mean over devices; without the first step",
              metrics.steps, time_parts(metrics)};
  chart.series.push_back(remaining_time(*step_ms, chart.series));
  chart.large = true;
  chart.x.erase(chart.x.begin());
  for (auto& series : chart.series) series.y.erase(series.y.begin());
  std::erase_if(chart.series, [](const ChartSeries& series) {
    return std::all_of(series.y.begin(), series.y.end(), [](double y) { return !(y > 0); });
  });
  return chart.series.empty() ? "" : stacked_figure(chart);
}

struct Level {
  std::string words;
  double value;
  std::string unit;
};

std::string levels_html(const std::vector<Level>& levels) {
  if (levels.empty()) return "";
  std::string html = "<details class=\"levels\"><summary>" + std::to_string(levels.size()) +
                     (levels.size() == 1 ? " value" : " values") +
                     " that no step changed</summary>\n<div class=\"scroll\"><table><tbody>\n";
  for (const auto& level : levels)
    html += "<tr><th scope=\"row\">" + html_text(level.words) + "</th><td>" + figure(level.value) +
            "</td><td class=\"text\">" + html_text(level.unit) + "</td></tr>\n";
  return html + "</tbody></table></div></details>\n";
}

// Collects charts of what changed, and the rest as levels.
class Gallery {
 public:
  explicit Gallery(const MetricsTable& metrics) : metrics_(metrics) {}

  void add(const ChartPlan& plan) {
    for (const auto& curve : plan.curves) shown_.insert(curve.key);
    auto chart = chart_of(plan, metrics_);
    const bool changes = std::any_of(chart.series.begin(), chart.series.end(),
                                     [](const auto& series) { return !constant(series.y); });
    if (changes) {
      draw(std::move(chart));
    } else {
      for (const auto& curve : plan.curves) add_level(curve.key);
    }
  }

  void skip(const std::string& key) { shown_.insert(key); }

  // Keys that nobody planned for, a chart each.
  void add_others() {
    for (const auto& [key, values] : metrics_.columns) {
      if (shown_.contains(key)) continue;
      const auto words = key_words(key);
      if (constant(values)) {
        add_level(key);
        continue;
      }
      draw({words.text,
            words.unit,
            metrics_.steps,
            {{words.text, scaled(values, words.factor), SeriesLook::line, is_sparse(values)}}});
    }
  }

  std::string html() const {
    if (html_.empty() && levels_.empty()) return "";
    return "<h2>Step by step</h2>\n<div class=\"charts\">\n" + html_ + "</div>\n" +
           levels_html(levels_);
  }

 private:
  // So many steps that single ones are a band of colour.
  static constexpr std::size_t kBandFrom = 500;

  void draw(Chart chart) {
    add_means(chart, kBandFrom);
    html_ += chart_figure(chart);
  }

  void add_level(const std::string& key) {
    const auto* values = metrics_.find(key);
    if (values == nullptr || values->empty()) return;
    const auto words = key_words(key);
    levels_.push_back({words.text, words.factor * values->front(), words.unit});
  }

  const MetricsTable& metrics_;
  std::set<std::string> shown_;
  std::string html_;
  std::vector<Level> levels_;
};

}  // namespace

std::string leading_charts(const RunRecord& run) {
  const auto metrics = with_rates(run.metrics);
  std::string html = "<div class=\"charts leading\">\n";
  for (const auto& plan : leading_plans()) html += leading_chart(plan, metrics, event_marks(run));
  return html + time_chart(metrics) + "</div>\n";
}

std::string further_charts(const RunRecord& run) {
  const auto metrics = with_rates(run.metrics);
  Gallery gallery(metrics);
  for (const auto& plan : leading_plans())
    for (const auto& curve : plan.curves) gallery.skip(curve.key);
  // Drawn as parts of a step's time, where there were enough steps for that.
  if (metrics.steps.size() >= 3)
    for (const auto* key : {"compute_ms", "update_ms", "transfer_ms", "offload_ms", "wait_ms"})
      gallery.skip(key);
  for (const auto& plan : further_plans()) gallery.add(plan);
  for (const auto& plan : phase_plans(metrics)) gallery.add(plan);
  gallery.add_others();
  return gallery.html();
}

}  // namespace troupe::observe
