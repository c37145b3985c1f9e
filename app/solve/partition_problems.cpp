// Cutting layers into stages: one list of layers, or a whole model with frozen modules.

#include "app/solve/planning_problems.hpp"
#include "scheduler/partition.hpp"

namespace troupe::app {

namespace {

Result<Json> solve_partition(const Json& input) {
  Reader in(input, "input");
  in.only({"costs", "stages"});
  const auto costs = in.numbers("costs", 0, kLongestMs);
  const auto stages = in.integer("stages", 1, kMostThings);
  if (!in.ok()) return in.error();
  return timed_json([&] { return scheduler::partition(costs, stages); },
                    [](const scheduler::Partition& made) {
                      return Json{{"cuts", made.cuts}, {"max", made.max}};
                    });
}

}  // namespace

std::vector<Problem> partition_problems() {
  return {{"partition", "contiguous stages with the least maximum",
           "{\"costs\": [number >= 0 per layer], \"stages\": integer >= 1}", solve_partition}};
}

}  // namespace troupe::app
