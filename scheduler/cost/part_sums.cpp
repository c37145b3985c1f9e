#include "scheduler/cost/part_sums.hpp"

namespace troupe::scheduler {

std::vector<std::vector<AlikeLayers>> layers_of_stages(const ParallelPlan& plan,
                                                       const SampleCosts& samples) {
  std::vector<std::vector<AlikeLayers>> layers;
  for (const auto& stage : plan.stages) {
    auto& own = layers.emplace_back();
    for (const auto& run : stage.runs) samples.add(run, stage.grid, own);
  }
  return layers;
}

PartSums::PartSums(const ParallelPlan& plan, const SampleCosts& samples,
                   const std::vector<MicrobatchList>& microbatches)
    : numbers_(plan.module_groups.size()) {
  const auto layers = layers_of_stages(plan, samples);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const ReplicaId replica = plan.stages[s].replica;
    groups_.push_back(plan.at(replica).group.index());
    auto& numbers = numbers_[groups_.back()];
    auto& costs = costs_.emplace_back();
    for (const auto& microbatch : microbatches[replica.index()])
      for (const auto& part : microbatch.parts) {
        if (part.samples.empty()) continue;  // `plan_iteration` says so.
        const auto first = static_cast<std::size_t>(part.samples.front());
        if (numbers.size() <= first) numbers.resize(first + 1);
        numbers[first] = costs.size();
        costs.push_back(samples.part(layers[s], part.samples));
      }
  }
}

}  // namespace troupe::scheduler
