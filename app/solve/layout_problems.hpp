// The layout problems of `troupe solve`; part of `schedule_problems`.

#pragma once

#include <vector>

#include "app/solve/problem.hpp"

namespace troupe::app {

std::vector<Problem> layout_problems();

}  // namespace troupe::app
