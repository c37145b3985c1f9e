// Charts as SVG inside of a page of `html_page`: axes with units, a legend, values under the
// pointer, and on demand a logarithmic axis. They stretch to any width; their labels keep their
// size.
//
// Pure.

#pragma once

#include <string>
#include <vector>

namespace troupe::observe {

enum class SeriesLook {
  line,      ///< One to three of them can be told apart.
  faint,     ///< What is behind the others: every single value of a smoothed line.
  smoothed,  ///< The line to the faint one before it, in the same colour.
};

struct ChartSeries {
  std::string name;
  std::vector<double> y;  ///< As many as `Chart::x`; not finite: a gap.
  SeriesLook look = SeriesLook::line;
  bool sparse = false;  ///< Has values at some steps alone: they are joined across gaps.
  std::string paint{};  ///< Stacked: a class of page.css that fills the area.
};

/// Something that happened at a step: a line across the chart, with a key in its legend.
struct ChartMark {
  double x = 0;
  std::string name;  ///< `checkpoint`; the same for all of a kind.
  std::string look;  ///< A class of page.css.
};

struct Chart {
  std::string title;
  std::string unit;                 ///< Of y: `tokens/s`; empty: none.
  std::vector<double> x;            ///< Ascending; steps.
  std::vector<ChartSeries> series;  ///< At least one.
  bool from_zero = true;            ///< The y axis begins at zero where no value is below.
  bool logarithmic = false;         ///< Can be switched to a logarithmic axis.
  bool large = false;               ///< One of the charts that a reader looks at first.
  std::vector<ChartMark> marks{};  ///< Ascending; of a kind as many are drawn as can be told apart.
};

/// A `<figure>`. Of many points the lowest and highest of each small span are drawn, so that no
/// peak is lost and the size of the figure is bounded (some 100 kB). Without a finite value the
/// figure says so. REQUIRES: at most 3 lines, a smoothed one and its faint one counted once.
std::string chart_figure(const Chart& chart);

/// The series above one another as areas: parts of a whole, none below zero. Of many points, the
/// mean of each small span is drawn. One point alone has no width: REQUIRES two steps or more.
std::string stacked_figure(const Chart& chart);

}  // namespace troupe::observe
