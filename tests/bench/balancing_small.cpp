#include "tests/bench/balancing_small.hpp"

#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "balancer/loads/distributions.hpp"
#include "balancer/microbatches/policies.hpp"
#include "scheduler/iteration/schedules.hpp"
#include "scheduler/layout/module_pipeline.hpp"
#include "tests/bench/real_mini_lengths.hpp"

namespace troupe::bench {

namespace {

using balancer::MicrobatchPlan;
using balancer::Workload;

constexpr std::size_t kBatch = 32;
constexpr std::int64_t kMicrobatches = 8;
constexpr double kBusier = 1.5;

// Consecutive batches, one module's work scaled to `kBusier` times the other's.
std::vector<std::vector<Workload>> batches(bool llm_busier) {
  const auto lengths = real_mini_lengths("../shared/data/real-mini");
  std::vector<Workload> work;
  for (const auto& sample : lengths) work.push_back(balancer::workload_of(sample));
  const auto sum = balancer::total(work);
  const double scale = sum.llm_ms / sum.encoder_ms * (llm_busier ? 1 / kBusier : kBusier);
  for (auto& sample : work) sample.encoder_ms *= scale;
  std::vector<std::vector<Workload>> all;
  for (std::size_t begin = 0; begin + kBatch <= work.size(); begin += kBatch)
    all.emplace_back(work.begin() + static_cast<std::ptrdiff_t>(begin),
                     work.begin() + static_cast<std::ptrdiff_t>(begin + kBatch));
  return all;
}

// One pipeline of an encoder and an llm stage under one schedule.
class Pipeline {
 public:
  Pipeline(const std::vector<Workload>& samples, std::string schedule, double overhead_ms)
      : schedule_(std::move(schedule)), overhead_ms_(overhead_ms) {
    for (const auto& sample : samples) work_.push_back({sample.encoder_ms, sample.llm_ms});
  }
  scheduler::TaskGraph graph(const MicrobatchPlan& plan) const {
    auto graph =
        scheduler::task_graph(scheduler::module_pipeline(work_, plan.encoder, plan.llm, {1, 1}),
                              scheduler::splits_weight_gradient(schedule_));
    for (auto& task : graph.tasks) task.ms += overhead_ms_;
    return graph;
  }
  double step_ms(const MicrobatchPlan& plan) const {
    const auto timeline = scheduler::make_schedule(graph(plan), schedule_);
    return timeline.ok() ? timeline.value().step_ms : HUGE_VAL;
  }
  double bound_ms(const MicrobatchPlan& plan) const {
    return scheduler::schedule_bound_ms(graph(plan), schedule_);
  }

 private:
  std::vector<scheduler::ModuleWork> work_;
  std::string schedule_;
  double overhead_ms_;
};

struct Mean {
  double step_ms = 0;
  double bound_ms = 0;
};

Mean mean_step(const std::vector<std::vector<Workload>>& all, const std::string& policy,
               const std::string& schedule, double overhead_ms) {
  Mean mean;
  std::uint64_t seed = 0;
  for (const auto& samples : all) {
    const Pipeline pipeline(samples, schedule, overhead_ms);
    balancer::PolicyOptions options{.microbatches = kMicrobatches, .seed = ++seed};
    options.cost = [&](const MicrobatchPlan& plan) { return pipeline.step_ms(plan); };
    const auto plan = balancer::assign_microbatches(policy, samples, options).value();
    mean.step_ms += pipeline.step_ms(plan) / static_cast<double>(all.size());
    mean.bound_ms += pipeline.bound_ms(plan) / static_cast<double>(all.size());
  }
  return mean;
}

void print_table(bool llm_busier, double overhead) {
  const auto all = batches(llm_busier);
  if (all.empty()) return;
  double work = 0;
  for (const auto& samples : all) {
    const auto sum = balancer::total(samples);
    work += (sum.encoder_ms + sum.llm_ms) / 2 / kMicrobatches / static_cast<double>(all.size());
  }
  std::printf(
      "\n%s 1.5 times as busy, an action costs %.0f %% of a mean forward besides; step over "
      "random's (above its bound)\n%-18s",
      llm_busier ? "llm" : "encoder", 100 * overhead, "policy");
  const std::vector<std::string> schedules{"1f1b", "eager-1f1b", "split-1f1b", "zero-bubble"};
  for (const auto& schedule : schedules) std::printf("%18s", schedule.c_str());
  std::printf("\n");
  std::map<std::string, double> random;
  for (const auto& policy : balancer::policy_names()) {
    std::printf("%-18s", policy.c_str());
    for (const auto& schedule : schedules) {
      const auto mean = mean_step(all, policy, schedule, overhead * work);
      if (policy == "random") random[schedule] = mean.step_ms;
      std::printf("   %5.3f (%5.1f %%)", mean.step_ms / random[schedule],
                  100 * (mean.step_ms / mean.bound_ms - 1));
    }
    std::printf("\n");
  }
}

}  // namespace

void print_small_batches() {
  std::printf("Batches of %zu of real-mini, %d microbatches, 1 + 1 stages\n", kBatch,
              static_cast<int>(kMicrobatches));
  for (const bool llm_busier : {true, false})
    for (const double overhead : {0.0, 0.1}) print_table(llm_busier, overhead);
}

}  // namespace troupe::bench
