#include "tests/bench/padded_sounds.hpp"

#include <utility>

#include "balancer/ranks/post_balance.hpp"
#include "runtime/vocabulary/index.hpp"

namespace troupe::bench {

scheduler::TaskCost padded_cost(const ParallelPlan& plan, ModuleGroupId group,
                                std::span<const SampleShape> samples, scheduler::TaskCost packed) {
  const ModuleId encoder = plan.module_groups[group.index()].modules.front();
  return [&plan, group, samples, encoder, packed = std::move(packed)](
             StageId stage, const std::vector<std::int32_t>& part, scheduler::TaskKind kind) {
    if (plan.at(plan.at(stage).replica).group != group) return packed(stage, part, kind);
    std::size_t count = 0;
    std::int32_t longest = 0;
    TokenCount most = 0;
    for (const std::int32_t sample : part) {
      const TokenCount rows = samples[at(sample)].hidden_rows(encoder);
      count += rows > 0 ? 1 : 0;
      if (rows > most) most = rows, longest = sample;
    }
    return packed(stage, std::vector<std::int32_t>(count, longest), kind);
  };
}

double padding_ms(const ParallelPlan& plan, ModuleGroupId group,
                  std::span<const MicrobatchList> microbatches, const scheduler::TaskCost& padded,
                  const scheduler::TaskCost& packed) {
  double sum = 0;
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    if (plan.replicas[r].group != group) continue;
    for (const StageId stage : plan.replicas[r].stages)
      for (const Microbatch& microbatch : microbatches[r])
        for (const Part& part : microbatch.parts)
          for (const auto kind : {scheduler::TaskKind::forward, scheduler::TaskKind::backward})
            sum += padded(stage, part.samples, kind) - packed(stage, part.samples, kind);
  }
  return sum;
}

Result<std::vector<std::vector<std::int32_t>>> deal_for_paddings(
    ModuleId encoder, std::span<const SampleShape> samples,
    std::span<const std::vector<std::int32_t>> drawn) {
  balancer::RankLengths lengths(drawn.size());
  std::vector<std::vector<std::int32_t>> with_rows(drawn.size()), dealt(drawn.size());
  for (std::size_t rank = 0; rank < drawn.size(); ++rank)
    for (const std::int32_t sample : drawn[rank]) {
      const TokenCount rows = samples[at(sample)].hidden_rows(encoder);
      (rows > 0 ? with_rows : dealt)[rank].push_back(sample);
      if (rows > 0) lengths[rank].push_back(rows);
    }
  const auto balanced =
      balancer::post_balance(lengths, {.algorithm = balancer::PostBalance::padding});
  if (!balanced.ok()) return balanced.error();
  const auto batches = balanced.value().rearrangement.apply(with_rows);
  for (std::size_t rank = 0; rank < dealt.size(); ++rank)
    dealt[rank].insert(dealt[rank].end(), batches[rank].begin(), batches[rank].end());
  return dealt;
}

}  // namespace troupe::bench
