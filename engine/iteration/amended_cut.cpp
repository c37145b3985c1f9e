#include "engine/iteration/amended_cut.hpp"

#include <algorithm>

namespace troupe::engine {

namespace {

MicrobatchList without_gone(const MicrobatchList& list, const SamplePlaces& places) {
  MicrobatchList kept;
  for (const Microbatch& microbatch : list) {
    Microbatch left;
    for (const Part& part : microbatch.parts) {
      Part own;
      for (const auto sample : part.samples)
        if (const auto place = places[static_cast<std::size_t>(sample)])
          own.samples.push_back(*place);
      if (!own.samples.empty()) left.parts.push_back(std::move(own));
    }
    if (!left.parts.empty()) kept.push_back(std::move(left));
  }
  return kept;
}

}  // namespace

AmendedCut amend_cut(const ParallelPlan& plan, std::span<const MicrobatchList> microbatches,
                     const SamplePlaces& places) {
  AmendedCut amended;
  amended.pipelines.resize(plan.pipelines.size());
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    amended.microbatches.push_back(without_gone(microbatches[r], places));
    if (!plan.is_llm(ReplicaId{r})) continue;
    auto& own = amended.pipelines[plan.replicas[r].pipeline.index()];
    for (const Microbatch& microbatch : amended.microbatches.back())
      for (const Part& part : microbatch.parts)
        own.insert(own.end(), part.samples.begin(), part.samples.end());
  }
  for (auto& own : amended.pipelines) std::sort(own.begin(), own.end());
  return amended;
}

}  // namespace troupe::engine
