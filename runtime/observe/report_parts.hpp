// Sections of a report's page, in the order of the page. Private to report_page.cpp.
//
// Pure; each is HTML, empty where there is nothing to say.

#pragma once

#include <string>
#include <vector>

#include "runtime/observe/chart.hpp"
#include "runtime/observe/report.hpp"

namespace troupe::observe {

/// What fills the first screen: outcome, job, time, machine, versions, parameters, layout; the
/// figures that one asks for first; bad samples and events.
std::string head_html(const RunRecord& run);

/// Loss, throughput and where time went, large.
std::string leading_charts(const RunRecord& run);

/// What events.jsonl says, as marks for charts over steps.
std::vector<ChartMark> event_marks(const RunRecord& run);

/// The same as a table, the last ones where there are many.
std::string events_table(const RunRecord& run);

/// Every figure of `report_figures`, folded away.
std::string all_figures_html(const RunRecord& run);

/// The other charts, one per group of keys, and a table of what never changed.
std::string further_charts(const RunRecord& run);

}  // namespace troupe::observe
