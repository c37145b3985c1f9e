#include "runtime/observe/chart.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstdio>
#include <limits>

#include <nlohmann/json.hpp>

#include "runtime/observe/html_page.hpp"

namespace troupe::observe {

namespace {

// The picture's own units; the page scales it.
constexpr double kWidth = 640, kHeight = 220, kLeft = 56, kRight = 14, kTop = 10, kBottom = 30;
constexpr std::size_t kSpansMax = 600;  // Of which each may leave two points.
constexpr std::size_t kDotsMax = 40;    // Up to here single points are marked.

std::string coordinate(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

// Steps of 1, 2 or 5 that give about `count` labels.
double tick_step(double span, double count) {
  const double rough = span / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= rough) return factor * power;
  return 10 * power;
}

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void add(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

Range y_range(const Chart& chart) {
  Range range;
  for (const auto& series : chart.series)
    for (const double y : series.y) range.add(y);
  if (range.empty()) return range;
  if (chart.from_zero && range.low >= 0) range.low = 0;
  if (range.low == range.high) {
    // A level line in the middle, or zero on the ground.
    const double room = range.low == 0 ? 1 : std::abs(range.low) / 2;
    if (range.low != 0) range.low -= room;
    range.high += room;
  } else {
    range.high += (range.high - range.low) * 0.05;
    if (range.low != 0) range.low -= (range.high - range.low) * 0.05;
  }
  return range;
}

// Rows that are drawn: all, or per span those where a series is lowest and highest.
std::vector<std::size_t> drawn_rows(const Chart& chart) {
  const auto count = chart.x.size();
  const std::size_t spans = std::min(count, kSpansMax);
  std::vector<std::size_t> rows;
  for (std::size_t span = 0; span < spans; ++span) {
    const auto begin = span * count / spans, end = (span + 1) * count / spans;
    for (const auto& series : chart.series) {
      auto low = begin, high = begin;
      for (auto i = begin; i < end; ++i) {
        if (!(series.y[low] <= series.y[i])) low = i;  // NaN gives way.
        if (!(series.y[high] >= series.y[i])) high = i;
      }
      rows.push_back(low);
      rows.push_back(high);
    }
  }
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

class Drawing {
 public:
  Drawing(const Chart& chart, const Range& y) : chart_(chart), y_(y), rows_(drawn_rows(chart)) {
    for (const double x : chart.x) x_.add(x);
    if (x_.low == x_.high) x_ = {x_.low - 0.5, x_.high + 0.5};
  }

  std::string svg() const {
    std::string out = "<svg viewBox=\"0 0 " + coordinate(kWidth) + " " + coordinate(kHeight) +
                      "\" role=\"img\" aria-label=\"" + html_text(label()) + "\">\n";
    out += y_axis() + x_axis();
    for (std::size_t s = 0; s < chart_.series.size(); ++s) out += curve(s);
    return out + "<line class=\"crosshair\" y1=\"" + coordinate(kTop) + "\" y2=\"" +
           coordinate(kHeight - kBottom) + "\" visibility=\"hidden\"/></svg>\n" + data();
  }

 private:
  double px(double x) const {
    return kLeft + (x - x_.low) / (x_.high - x_.low) * (kWidth - kLeft - kRight);
  }
  double py(double y) const {
    return kTop + (y_.high - y) / (y_.high - y_.low) * (kHeight - kTop - kBottom);
  }

  std::string label() const {
    auto text =
        chart_.title + " over steps " + figure(chart_.x.front()) + " to " + figure(chart_.x.back());
    for (const auto& series : chart_.series) {
      Range range;
      for (const double y : series.y) range.add(y);
      if (range.empty()) continue;
      text += "; " + series.name + " between " + figure(range.low) + " and " + figure(range.high);
      if (!chart_.unit.empty()) text += " " + chart_.unit;
    }
    return text;
  }

  std::string y_axis() const {
    std::string out;
    const double step = tick_step(y_.high - y_.low, 5);
    for (double tick = std::ceil(y_.low / step) * step; tick <= y_.high; tick += step) {
      const double value = std::abs(tick) < step * 1e-6 ? 0 : tick;
      const auto y = coordinate(py(value));
      out += "<path class=\"gridline\" d=\"M" + coordinate(kLeft) + " " + y + "H" +
             coordinate(kWidth - kRight) + "\"/><text x=\"" + coordinate(kLeft - 6) + "\" y=\"" +
             coordinate(py(value) + 4) + "\" text-anchor=\"end\">" + figure(value) + "</text>\n";
    }
    return out;
  }

  std::string x_axis() const {
    const auto ground = coordinate(kHeight - kBottom);
    std::string out = "<path class=\"frameline\" d=\"M" + coordinate(kLeft) + " " + ground + "H" +
                      coordinate(kWidth - kRight) + "\"/>\n";
    const double step = std::max(tick_step(x_.high - x_.low, 8), 1.0);  // Steps are whole.
    for (double tick = std::ceil(x_.low / step) * step; tick <= x_.high; tick += step)
      out += "<text x=\"" + coordinate(px(tick)) + "\" y=\"" + coordinate(kHeight - kBottom + 14) +
             "\" text-anchor=\"middle\">" + figure(tick) + "</text>\n";
    return out + "<text x=\"" + coordinate(kWidth - kRight) + "\" y=\"" + coordinate(kHeight - 2) +
           "\" text-anchor=\"end\">step</text>\n";
  }

  std::string curve(std::size_t s) const {
    const auto& series = chart_.series[s];
    const auto number = std::to_string(s);
    std::string path, dots;
    bool pen_down = false;
    for (const auto row : rows_) {
      const double y = series.y[row];
      if (std::isfinite(y)) {
        const auto at = coordinate(px(chart_.x[row])) + " " + coordinate(py(y));
        path += (pen_down ? "L" : "M") + at;
        if (chart_.x.size() <= kDotsMax)
          dots += "<circle class=\"dot" + number + "\" r=\"2.5\" cx=\"" +
                  coordinate(px(chart_.x[row])) + "\" cy=\"" + coordinate(py(y)) + "\"/>";
      }
      pen_down = std::isfinite(y);
    }
    return "<path class=\"curve s" + number + "\" d=\"" + path + "\"/>" + dots + "\n";
  }

  // What the script shows under the pointer.
  std::string data() const {
    nlohmann::ordered_json json{{"x", nlohmann::json::array()},
                                {"px", nlohmann::json::array()},
                                {"unit", chart_.unit},
                                {"series", nlohmann::json::array()}};
    for (const auto row : rows_) {
      json["x"].push_back(chart_.x[row]);
      json["px"].push_back(std::round(10 * px(chart_.x[row])) / 10);
    }
    for (const auto& series : chart_.series) {
      auto values = nlohmann::ordered_json::array();
      for (const auto row : rows_) values.push_back(series.y[row]);
      json["series"].push_back({{"name", series.name}, {"y", std::move(values)}});
    }
    using Handler = nlohmann::ordered_json::error_handler_t;
    return "<script type=\"application/json\">" +
           script_json(json.dump(-1, ' ', false, Handler::replace)) + "</script>\n";
  }

  const Chart& chart_;
  Range y_, x_;
  std::vector<std::size_t> rows_;
};

std::string legend(const Chart& chart) {
  if (chart.series.size() < 2) return "";
  std::string keys;
  for (std::size_t s = 0; s < chart.series.size(); ++s)
    keys +=
        "<span class=\"key\"><svg viewBox=\"0 0 22 6\" aria-hidden=\"true\"><path class=\"curve s" +
        std::to_string(s) + "\" d=\"M0 3H22\"/></svg>" + html_text(chart.series[s].name) +
        "</span>";
  return "<span>" + keys + "</span>";
}

}  // namespace

std::string chart_figure(const Chart& chart) {
  assert(!chart.series.empty() && chart.series.size() <= 3);
  const auto heading =
      html_text(chart.title) +
      (chart.unit.empty() ? "" : ", <span class=\"unit\">" + html_text(chart.unit) + "</span>");
  const auto y = y_range(chart);
  std::string figure = "<figure class=\"chart\"><figcaption><h3>" + heading + "</h3>" +
                       legend(chart) + "<span class=\"value\"></span></figcaption>\n";
  figure +=
      chart.x.empty() || y.empty() ? "<p class=\"note\">No values.</p>\n" : Drawing(chart, y).svg();
  return figure + "</figure>\n";
}

}  // namespace troupe::observe
