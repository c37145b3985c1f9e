#include "scheduler/iteration/deal_microbatches.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <queue>
#include <utility>

namespace troupe::scheduler {

namespace {

/// Deals the encoder microbatches of all cuts to the replicas of one group.
void deal_to_group(const std::vector<ReplicaId>& replicas, const std::vector<ReplicaCut>& cuts,
                   const MicrobatchLoad& load, std::vector<MicrobatchList>& microbatches) {
  std::size_t rounds = 0;
  for (const ReplicaCut& cut : cuts) rounds = std::max(rounds, cut.encoder.size());
  const bool apart = replicas.size() == cuts.size();
  using Loaded = std::pair<double, std::size_t>;  // What a replica has to do, and its place.
  std::priority_queue<Loaded, std::vector<Loaded>, std::greater<>> least;  // The first of equals.
  for (std::size_t r = 0; !apart && r < replicas.size(); ++r) least.emplace(0.0, r);
  for (std::size_t round = 0; round < rounds; ++round)
    for (std::size_t c = 0; c < cuts.size(); ++c) {
      if (round >= cuts[c].encoder.size()) continue;
      const Microbatch& microbatch = cuts[c].encoder[round];
      std::size_t to = c;
      if (!apart) {
        const auto [before, place] = least.top();
        least.pop();
        least.emplace(before + load(replicas[place], microbatch), place);
        to = place;
      }
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
