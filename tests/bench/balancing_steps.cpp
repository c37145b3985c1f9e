#include "tests/bench/balancing_steps.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "app/solve/policy_simulation.hpp"
#include "balancer/distributions.hpp"
#include "balancer/policies.hpp"
#include "scheduler/module_pipeline.hpp"
#include "tests/bench/measure.hpp"

namespace troupe::bench {

namespace {

struct Steps {
  double step_ms = 0;
  double gap = 0;           // Percent above the lower bound of any schedule.
  double schedule_gap = 0;  // Percent above that of this one.
};

Steps steps(const std::vector<balancer::Workload>& samples, const std::string& policy,
            const std::string& schedule, const scheduler::ModulePipeline& shape) {
  app::PolicySimulation simulation(samples, shape, schedule);
  balancer::PolicyOptions options;
  options.microbatches = 4 * (shape.encoder_stages + shape.llm_stages);
  simulation.guide(policy, options);
  const auto plan = balancer::assign_microbatches(policy, samples, options).value();
  const auto graph = simulation.graph(plan);
  const double step = simulation.run(plan).value().step_ms;
  return {step, 100 * (step / lower_bound_ms(graph) - 1),
          100 * (step / schedule_bound_ms(graph, schedule) - 1)};
}

}  // namespace

void print_steps(const std::string& only) {
  constexpr std::pair<std::int32_t, std::int32_t> kLayouts[] = {{1, 1}, {2, 2}, {4, 4},
                                                                {1, 3}, {3, 5}, {2, 6}};
  for (const auto& [encoder, llm] : kLayouts)
    for (const std::string schedule : {"1f1b", "eager-1f1b", "gpipe"})
      for (const auto distribution : balancer::distributions()) {
        const std::string layout = std::to_string(encoder) + " + " + std::to_string(llm);
        if ((layout + ", " + schedule).find(only) == std::string::npos) continue;
        const scheduler::ModulePipeline shape{.encoder_stages = encoder, .llm_stages = llm};
        const auto microbatches = static_cast<std::size_t>(4 * (encoder + llm));
        double gap = 0, schedule_gap = 0, over_even = 0, over_random = 0;
        for (std::uint64_t seed = 0; seed < 2; ++seed) {
          const auto samples = generate_workloads(distribution, 16 * microbatches, seed);
          const auto best = steps(samples, "auto", schedule, shape);
          gap = std::max(gap, best.gap);
          schedule_gap = std::max(schedule_gap, best.schedule_gap);
          over_even = std::max(
              over_even, best.step_ms / steps(samples, "dflop-search", schedule, shape).step_ms);
          over_random = std::max(over_random,
                                 best.step_ms / steps(samples, "random", schedule, shape).step_ms);
        }
        const std::string size = std::string(to_string(distribution)) + ", " + schedule + ", " +
                                 std::to_string(encoder) + " + " + std::to_string(llm) +
                                 " stages, K " + std::to_string(microbatches) +
                                 ", 16 per microbatch";
        print("auto.gap_to_bound", gap, "%", 2, size);
        if (schedule == "gpipe") print("auto.gap_to_schedule_bound", schedule_gap, "%", 2, size);
        print("auto.step_over_even_microbatches", over_even, "ratio", 1, size);
        print("auto.step_over_random", over_random, "ratio", 1, size);
      }
}

}  // namespace troupe::bench
