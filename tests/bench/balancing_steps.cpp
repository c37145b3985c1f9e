#include "tests/bench/balancing_steps.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/solve/policy_simulation.hpp"
#include "balancer/microbatches/policies.hpp"
#include "scheduler/layout/module_pipeline.hpp"
#include "tests/bench/balancing_data.hpp"
#include "tests/bench/measure.hpp"

namespace troupe::bench {

namespace {

struct Steps {
  double step_ms = 0;
  double gap = 0;           // Percent above the lower bound of any schedule.
  double schedule_gap = 0;  // Percent above that of this one.
};

Steps steps(const std::vector<balancer::Workload>& samples, const std::string& policy,
            const std::string& schedule, const scheduler::ModulePipeline& shape,
            std::int64_t microbatches) {
  app::PolicySimulation simulation(samples, shape, schedule);
  balancer::PolicyOptions options;
  options.microbatches = microbatches;
  simulation.guide(policy, options);
  const auto plan = balancer::assign_microbatches(policy, samples, options).value();
  const auto graph = simulation.graph(plan);
  const double step = simulation.run(plan).value().step_ms;
  return {step, 100 * (step / lower_bound_ms(graph) - 1),
          100 * (step / schedule_bound_ms(graph, schedule) - 1)};
}

constexpr std::size_t kBatches = 2;  // Of each kind of data.

// Where the goal is set: at least 16 samples per microbatch and K four times the stages.
struct Scale {
  std::size_t samples = 16;       // Per microbatch.
  std::int64_t microbatches = 4;  // Per stage.
  bool goal() const { return samples >= 16 && microbatches >= 4; }
};

void print_steps(const scheduler::ModulePipeline& shape, const std::string& schedule, Scale scale,
                 const std::string& only) {
  const auto stages = shape.encoder_stages + shape.llm_stages;
  const std::int64_t microbatches = scale.microbatches * stages;
  for (const auto& data :
       data_sets(scale.samples * static_cast<std::size_t>(microbatches), kBatches, kBatches)) {
    const std::string size =
        data.name + ", " + schedule + ", " + std::to_string(shape.encoder_stages) + " + " +
        std::to_string(shape.llm_stages) + " stages, K " + std::to_string(microbatches) + ", " +
        std::to_string(scale.samples) + " per microbatch";
    if (size.find(only) == std::string::npos) continue;
    double gap = 0, schedule_gap = 0, step_ms = 0, over_even = 0, over_random = 0;
    for (const auto& samples : data.batches) {
      const auto best = steps(samples, "auto", schedule, shape, microbatches);
      const auto over = [&](const char* policy) {
        return best.step_ms / steps(samples, policy, schedule, shape, microbatches).step_ms;
      };
      gap = std::max(gap, best.gap);
      step_ms += best.step_ms / static_cast<double>(data.batches.size());
      schedule_gap = std::max(schedule_gap, best.schedule_gap);
      over_even = std::max(over_even, over("dflop-search"));
      over_random = std::max(over_random, over("random"));
    }
    const std::optional<double> bound = scale.goal() ? std::optional<double>(2) : std::nullopt;
    print("auto.gap_to_bound", gap, "%", bound, size);
    if (schedule == "gpipe") print("auto.gap_to_schedule_bound", schedule_gap, "%", bound, size);
    print("auto.step_ms", step_ms, "ms", {}, size);
    print("auto.step_over_even_microbatches", over_even, "ratio", 1, size);
    print("auto.step_over_random", over_random, "ratio", 1, size);
  }
}

}  // namespace

void print_steps(const std::string& only) {
  constexpr std::pair<std::int32_t, std::int32_t> kLayouts[] = {{1, 1}, {2, 2}, {4, 4},
                                                                {1, 3}, {3, 5}, {2, 6}};
  for (const auto& [encoder, llm] : kLayouts)
    for (const std::string schedule : {"1f1b", "eager-1f1b", "gpipe"})
      print_steps({.encoder_stages = encoder, .llm_stages = llm}, schedule, {}, only);
  for (const Scale scale : {Scale{4, 4}, Scale{16, 2}, Scale{16, 8}, Scale{32, 4}})
    for (const std::int32_t encoder : {1, 2, 3})
      print_steps({.encoder_stages = encoder, .llm_stages = encoder == 3 ? 5 : encoder}, "1f1b",
                  scale, only);
}

}  // namespace troupe::bench
