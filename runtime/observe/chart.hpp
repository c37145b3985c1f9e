// Line charts as SVG inside of a page of `html_page`: axes with units, a legend, values under the
// pointer.
//
// Pure.

#pragma once

#include <string>
#include <vector>

namespace troupe::observe {

struct ChartSeries {
  std::string name;
  std::vector<double> y;  ///< As many as `Chart::x`; not finite: a gap.
};

struct Chart {
  std::string title;
  std::string unit;                 ///< Of y: `tokens/s`; empty: none.
  std::vector<double> x;            ///< Ascending; steps.
  std::vector<ChartSeries> series;  ///< One to three: that many line styles can be told apart.
  bool from_zero = true;            ///< The y axis begins at zero where no value is below.
};

/// A `<figure>`. Of many points the lowest and highest of each small span are drawn, so that no
/// peak is lost. Without a finite value the figure says so. REQUIRES: 1 to 3 series.
std::string chart_figure(const Chart& chart);

}  // namespace troupe::observe
