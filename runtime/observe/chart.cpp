#include "runtime/observe/chart.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "runtime/observe/chart_scale.hpp"
#include "runtime/observe/html_page.hpp"

namespace troupe::observe {

namespace {

using Json = nlohmann::ordered_json;

// The picture is stretched to the page: only shares of width and height count, in thousandths.
constexpr double kSide = 1000;
constexpr std::size_t kRowsMax = 800, kRowsMaxLarge = 1600;
constexpr std::size_t kDotsMax = 40;  // Up to here single points are marked.
constexpr std::size_t kSparseDotsMax = 200;
constexpr std::size_t kSpansStacked = 240;

std::string coordinate(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f", value);
  return text.data();
}

// Six figures: more than a reader or a picture needs, and a third of the file.
double short_number(double value) {
  if (!std::isfinite(value)) return value;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.6g", value);
  return std::strtod(text.data(), nullptr);
}

// Adds the rows in [begin, end) at which the values are lowest and highest; any where none is
// finite, which leaves a gap.
void add_extremes(const std::vector<double>& y, std::size_t begin, std::size_t end,
                  std::vector<std::size_t>& rows) {
  auto low = end, high = end;
  for (auto i = begin; i < end; ++i) {
    if (!std::isfinite(y[i])) continue;
    if (low == end || y[i] < y[low]) low = i;
    if (high == end || y[i] > y[high]) high = i;
  }
  rows.push_back(low == end ? begin : low);
  rows.push_back(high == end ? begin : high);
}

// Rows that are drawn: all where there are few, or per span those where a series is lowest and
// highest.
std::vector<std::size_t> drawn_rows(const Chart& chart) {
  const auto count = chart.x.size();
  const auto rows_max = chart.large ? kRowsMaxLarge : kRowsMax;
  const auto spans = std::min(count, rows_max / (2 * chart.series.size()));
  // How it began and how it ended are asked for by themselves.
  std::vector<std::size_t> rows{0, count - 1};
  for (std::size_t span = 0; span < spans; ++span)
    for (const auto& series : chart.series)
      add_extremes(series.y, span * count / spans, (span + 1) * count / spans, rows);
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

ChartScale steps_scale(const Chart& chart) {
  ValueRange range;
  for (const double x : chart.x) range.add(x);
  if (range.low == range.high) return {range.low - 0.5, range.high + 0.5};
  return {range.low, range.high};
}

// The plot area with axes, and what a drawing of any kind puts into it.
class Plot {
 public:
  Plot(const Chart& chart, const ChartScale& y) : chart_(chart), x_(steps_scale(chart)), y_(y) {}

  double px(double x) const { return kSide * x_.share(x); }
  double py(double y) const { return kSide * (1 - y_.share(y)); }
  std::string at(double x, double y) const { return coordinate(px(x)) + " " + coordinate(py(y)); }

  // `marks`: the curves. Labels are HTML beside the picture, so that they are not stretched.
  std::string html(const std::string& marks, const std::string& words) const {
    std::string grid, labels;
    for (const double tick : y_.ticks(5)) {
      const auto y = coordinate(py(tick));
      grid += "<path class=\"gridline\" d=\"M0 " + y + "H1000\"/>";
      labels += "<span class=\"y\" style=\"top:" + coordinate(py(tick) / 10) + "%\">" +
                axis_number(tick) + "</span>";
    }
    for (const double tick : x_.ticks(6))
      if (tick == std::floor(tick))  // Steps are whole.
        labels += "<span class=\"x\" style=\"left:" + coordinate(px(tick) / 10) + "%\">" +
                  axis_number(tick) + "</span>";
    return std::string("<div class=\"plot") + (y_.logarithmic ? " log" : "") +
           "\"><svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" role=\"img\" "
           "aria-label=\"" +
           html_text(words) + "\">\n" + grid + "\n" + marks +
           "<line class=\"crosshair\" y1=\"0\" y2=\"1000\" visibility=\"hidden\"/></svg>\n" +
           labels + "<span class=\"x name\">step</span></div>\n";
  }

  // What the script shows under the pointer.
  std::string data(const std::vector<std::size_t>& rows) const {
    Json json{{"range", {x_.low, x_.high}}, {"unit", chart_.unit}, {"x", Json::array()}};
    for (const auto row : rows) json["x"].push_back(chart_.x[row]);
    json["series"] = Json::array();
    for (const auto& series : chart_.series) {
      auto values = Json::array();
      for (const auto row : rows) values.push_back(short_number(series.y[row]));
      json["series"].push_back({{"name", series.name}, {"y", std::move(values)}});
    }
    return "<script type=\"application/json\">" +
           script_json(json.dump(-1, ' ', false, Json::error_handler_t::replace)) + "</script>\n";
  }

 private:
  const Chart& chart_;
  ChartScale x_, y_;
};

// What the chart shows, for who cannot see it.
std::string described(const Chart& chart) {
  auto text =
      chart.title + " over steps " + figure(chart.x.front()) + " to " + figure(chart.x.back());
  for (const auto& series : chart.series) {
    ValueRange range;
    for (const double y : series.y) range.add(y);
    if (range.empty()) continue;
    text += "; " + series.name + " between " + figure(range.low) + " and " + figure(range.high);
    if (!chart.unit.empty()) text += " " + chart.unit;
  }
  return text;
}

// The class of each series: lines are numbered among themselves, so that colours stay.
std::vector<std::string> looks_of(const Chart& chart) {
  std::vector<std::string> looks;
  int lines = 0;
  for (const auto& series : chart.series) {
    if (series.look != SeriesLook::smoothed) ++lines;  // It shares the number of the faint one.
    looks.push_back("s" + std::to_string(lines - 1) +
                    (series.look == SeriesLook::faint      ? " faint"
                     : series.look == SeriesLook::smoothed ? " smooth"
                                                           : ""));
  }
  return looks;
}

std::string curve(const Plot& plot, const Chart& chart, const ChartSeries& series,
                  const std::string& look, const std::vector<std::size_t>& rows) {
  std::string path, dots;
  const auto dots_max = series.sparse ? kSparseDotsMax : kDotsMax;
  std::size_t points = 0;
  bool pen_down = false;
  for (const auto row : rows) {
    const bool drawn = std::isfinite(plot.py(series.y[row]));
    if (drawn) {
      const auto at = plot.at(chart.x[row], series.y[row]);
      path += (pen_down ? "L" : "M") + at;
      dots += "M" + at + "h0";
      ++points;
    }
    pen_down = drawn || (series.sparse && pen_down);
  }
  auto marks = "<path class=\"curve " + look + "\" d=\"" + path + "\"/>";
  if (points <= dots_max) marks += "<path class=\"dots " + look + "\" d=\"" + dots + "\"/>";
  return marks + "\n";
}

// Behind the curves. Marks of a kind that fall together are one, so that their number is bounded.
std::string marks_of(const Plot& plot, const Chart& chart) {
  constexpr double kApart = kSide / 200;
  std::map<std::string, double> last;
  std::string lines;
  for (const ChartMark& mark : chart.marks) {
    if (chart.x.empty() || mark.x < chart.x.front() || mark.x > chart.x.back()) continue;
    const double x = plot.px(mark.x);
    const auto [before, first] = last.try_emplace(mark.name, x);
    if (!first && x - before->second < kApart) continue;
    before->second = x;
    const std::string at = coordinate(x);
    lines += "<line class=\"mark " + mark.look + "\" x1=\"" + at + "\" x2=\"" + at +
             "\" y1=\"0\" y2=\"1000\"><title>" + html_text(mark.name) + ", step " + figure(mark.x) +
             "</title></line>";
  }
  return lines.empty() ? "" : lines + "\n";
}

std::string lines(const Chart& chart, const ChartScale& y, const std::vector<std::size_t>& rows,
                  bool with_data) {
  const Plot plot(chart, y);
  const auto looks = looks_of(chart);
  std::string marks = marks_of(plot, chart);
  for (std::size_t s = 0; s < chart.series.size(); ++s)
    marks += curve(plot, chart, chart.series[s], looks[s], rows);
  return plot.html(marks, described(chart)) + (with_data ? plot.data(rows) : "");
}

std::string key(const std::string& sign, const std::string& name) {
  return "<span class=\"key\">" + sign + html_text(name) + "</span>";
}

std::string legend(const Chart& chart) {
  std::string keys;
  const auto looks = looks_of(chart);
  bool hidden = false;
  for (std::size_t s = 0; s < chart.series.size() && chart.series.size() > 1; ++s) {
    const auto& series = chart.series[s];
    // Beside other lines, what is faint has their colours.
    if (series.look == SeriesLook::faint && chart.series.size() > 3) {
      hidden = true;
      continue;
    }
    keys += key(series.paint.empty()
                    ? "<svg viewBox=\"0 0 22 6\" aria-hidden=\"true\"><path class=\"curve " +
                          looks[s] + "\" d=\"M0 3H22\"/></svg>"
                    : "<span class=\"swatch " + series.paint + "\"></span>",
                series.name);
  }
  if (hidden) keys += "<span class=\"key\">(faint: each step)</span>";
  std::set<std::string> named;
  for (const ChartMark& mark : chart.marks)
    if (named.insert(mark.name).second)
      keys += key("<svg viewBox=\"0 0 22 12\" aria-hidden=\"true\"><line class=\"mark " +
                      mark.look + "\" x1=\"11\" x2=\"11\" y1=\"0\" y2=\"12\"/></svg>",
                  mark.name);
  if (keys.empty()) return "";
  return "<span class=\"keys\">" + keys + "</span>";
}

std::string framed(const Chart& chart, const std::string& plots, bool can_switch) {
  const auto heading =
      html_text(chart.title) +
      (chart.unit.empty() ? "" : ", <span class=\"unit\">" + html_text(chart.unit) + "</span>");
  return std::string("<figure class=\"chart") + (chart.large ? " large" : "") +
         "\"><figcaption><h3>" + heading + "</h3>" + legend(chart) +
         (can_switch ? "<label class=\"switch\"><input type=\"checkbox\"> log scale</label>" : "") +
         "<span class=\"value\"></span></figcaption>\n" +
         (plots.empty() ? "<p class=\"note\">No values.</p>\n" : plots) + "</figure>\n";
}

ValueRange values_of(const Chart& chart, bool positive) {
  ValueRange range;
  for (const auto& series : chart.series)
    for (const double y : series.y)
      if (!positive || y > 0) range.add(y);
  return range;
}

// Of many points, the means of small spans.
Chart averaged(const Chart& chart) {
  const auto count = chart.x.size(), spans = std::min(count, kSpansStacked);
  Chart means = chart;
  means.x.clear();
  for (auto& series : means.series) series.y.clear();
  for (std::size_t span = 0; span < spans; ++span) {
    const auto begin = span * count / spans, end = (span + 1) * count / spans;
    means.x.push_back(chart.x[begin]);
    for (std::size_t s = 0; s < chart.series.size(); ++s) {
      double sum = 0, finite = 0;
      for (auto i = begin; i < end; ++i)
        if (std::isfinite(chart.series[s].y[i])) sum += chart.series[s].y[i], ++finite;
      means.series[s].y.push_back(finite > 0 ? sum / finite : 0);
    }
  }
  return means;
}

}  // namespace

std::string chart_figure(const Chart& chart) {
  assert(!chart.series.empty());
  const auto range = values_of(chart, false), positive = values_of(chart, true);
  if (chart.x.empty() || range.empty()) return framed(chart, "", false);
  const auto rows = drawn_rows(chart);
  const bool can_switch = chart.logarithmic && !positive.empty() && positive.low < positive.high;
  auto plots = lines(chart, linear_scale(range, chart.from_zero), rows, true);
  if (can_switch) plots += lines(chart, logarithmic_scale(positive), rows, false);
  return framed(chart, plots, can_switch);
}

std::string stacked_figure(const Chart& given) {
  assert(!given.series.empty());
  if (given.x.empty() || values_of(given, false).empty()) return framed(given, "", false);
  const auto chart = averaged(given);
  const auto count = chart.x.size();
  std::vector<double> floor(count, 0), top(count, 0);
  for (const auto& series : chart.series)
    for (std::size_t i = 0; i < count; ++i) top[i] += series.y[i];
  const Plot plot(chart, linear_scale({0, *std::max_element(top.begin(), top.end())}, true));
  std::string marks;
  for (const auto& series : chart.series) {
    std::string above, below;
    for (std::size_t i = 0; i < count; ++i) {
      below = "L" + plot.at(chart.x[i], floor[i]) + below;
      floor[i] += series.y[i];
      above += (i == 0 ? "M" : "L") + plot.at(chart.x[i], floor[i]);
    }
    marks += "<path class=\"area " + series.paint + "\" d=\"" + above + below + "z\"/>\n";
  }
  std::vector<std::size_t> rows(count);
  for (std::size_t i = 0; i < count; ++i) rows[i] = i;
  return framed(chart, plot.html(marks, described(chart)) + plot.data(rows), false);
}

}  // namespace troupe::observe
