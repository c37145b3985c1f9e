// How `troupe plan` prints by which way rows go from one module to the next, and why; and as JSON.

#pragma once

#include "app/plan_step.hpp"
#include "app/planning_text.hpp"

namespace troupe::app {

/// One line per boundary between module groups that a job pins or whose routes differ: the route,
/// what the rows of the step take by it, and by the others. Prints nothing where there is none.
void print_boundaries(const PlannedStep& planned);

/// `boundaries`: [{module, to, route, pinned, predicted_ms {direct, leader, gather-scatter}, why}].
Json boundaries_json(const PlannedStep& planned);

}  // namespace troupe::app
