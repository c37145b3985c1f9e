#include "scheduler/iteration/deal_microbatches.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace troupe::scheduler {

namespace {

/// Deals the encoder microbatches of all cuts to the replicas of one group.
void deal_to_group(const std::vector<ReplicaId>& replicas, const std::vector<ReplicaCut>& cuts,
                   const MicrobatchLoad& load, std::vector<MicrobatchList>& microbatches) {
  std::size_t rounds = 0;
  for (const ReplicaCut& cut : cuts) rounds = std::max(rounds, cut.encoder.size());
  const bool apart = replicas.size() == cuts.size();
  std::vector<double> loads(replicas.size());
  for (std::size_t round = 0; round < rounds; ++round)
    for (std::size_t c = 0; c < cuts.size(); ++c) {
      if (round >= cuts[c].encoder.size()) continue;
      const Microbatch& microbatch = cuts[c].encoder[round];
      const auto least = std::min_element(loads.begin(), loads.end());
      const std::size_t to = apart ? c : static_cast<std::size_t>(least - loads.begin());
      if (!apart) loads[to] += load(replicas[to], microbatch);
      microbatches[replicas[to].index()].push_back(microbatch);
    }
}

}  // namespace

std::vector<std::vector<ReplicaId>> replicas_by_group(const ParallelPlan& plan,
                                                      PipelineId pipeline) {
  std::vector<std::vector<ReplicaId>> groups(plan.module_groups.size());
  for (const ReplicaId replica : plan.at(pipeline).replicas)
    groups[plan.at(replica).group.index()].push_back(replica);
  return groups;
}

void deal_microbatches(const ParallelPlan& plan, PipelineId pipeline, std::vector<ReplicaCut> cuts,
                       const MicrobatchLoad& load, std::vector<MicrobatchList>& microbatches) {
  const auto groups = replicas_by_group(plan, pipeline);
  for (std::size_t g = 0; g + 1 < groups.size(); ++g)
    deal_to_group(groups[g], cuts, load, microbatches);
  for (std::size_t c = 0; c < cuts.size(); ++c)
    microbatches[groups.back()[c].index()] = std::move(cuts[c].llm);
}

}  // namespace troupe::scheduler
