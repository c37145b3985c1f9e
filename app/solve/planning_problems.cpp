// The planning problems of `troupe solve`: JSON in and out around the functions of `scheduler/`.

#include "app/solve/problem.hpp"

namespace troupe::app {

std::vector<Problem> planning_problems() { return {}; }

}  // namespace troupe::app
