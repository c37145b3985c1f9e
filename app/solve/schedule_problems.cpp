// The schedule problems of `troupe solve`: layout, schedule, check, simulate.

#include "app/solve/problem.hpp"

namespace troupe::app {

std::vector<Problem> schedule_problems() { return {}; }

}  // namespace troupe::app
