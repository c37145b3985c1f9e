// The planning problems of `troupe solve` that stand before the layout: costs, templates, recovery.

#include "app/solve/planning_problems.hpp"

namespace troupe::app {

std::vector<Problem> planning_problems() {
  std::vector<Problem> problems;
  for (auto list : {partition_problems(), template_problems(), recovery_problems()})
    for (auto& problem : list) problems.push_back(std::move(problem));
  return problems;
}

}  // namespace troupe::app
