// The texts of runtime/observe/page/, which the build turns into constants.

#pragma once

#include <string_view>

namespace troupe::observe {

extern const std::string_view kPageStyle;            ///< page.css
extern const std::string_view kPageScript;           ///< page.js
extern const std::string_view kTimelineScript;       ///< timeline.js
extern const std::string_view kTimelineViewScript;   ///< timeline_view.js
extern const std::string_view kTimelineInputScript;  ///< timeline_input.js
extern const std::string_view kChartScript;          ///< chart.js

}  // namespace troupe::observe
