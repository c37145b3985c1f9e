// The balancing problems of `troupe solve`: JSON in and out around the functions of `balancer/`.

#include "app/solve/problem.hpp"

namespace troupe::app {

std::vector<Problem> balancing_problems() { return {}; }

}  // namespace troupe::app
