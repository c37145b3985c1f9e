// Random samples, and random ways to cut and to share them, for the planners' property tests.

#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "scheduler/iteration/plan_iteration.hpp"
#include "tests/scheduler/example_models.hpp"

namespace troupe::scheduler::testing {

inline std::vector<SampleShape> random_samples(std::mt19937& random, bool media, int count) {
  const int flavour = draw(random, 0, 3);  // Text only, images only, audio only, anything.
  std::vector<SampleShape> samples;
  for (int s = 0; s < count; ++s) {
    const int most = draw(random, 0, 3) == 0 ? 6 : 2;
    const int images = media && (flavour == 1 || flavour == 3) ? draw(random, 0, most) : 0;
    const int windows = media && (flavour == 2 || flavour == 3) ? draw(random, 0, most) : 0;
    samples.push_back(sample(images, windows, draw(random, 1, 20)));
  }
  return samples;
}

/// Encoder microbatches cut into parts, some of them deferred: their llm part lies in the next
/// microbatch of its replica, in the one after, or in another replica.
inline std::vector<MicrobatchList> random_deferral(const ParallelPlan& plan,
                                                   std::vector<MicrobatchList> list,
                                                   std::mt19937& random) {
  std::vector<std::size_t> llms, first_group;
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    if (plan.is_llm(ReplicaId{r})) llms.push_back(r);
    if (!plan.is_llm(ReplicaId{r}) && plan.replicas[r].group == ModuleGroupId{0})
      first_group.push_back(r);
  }
  const auto place_of = [&](std::int32_t sample) {  // Its llm replica and microbatch.
    for (const auto r : llms)
      for (std::size_t m = 0; m < list[r].size(); ++m) {
        const auto& own = list[r][m].parts[0].samples;
        if (std::find(own.begin(), own.end(), sample) != own.end()) return std::pair{r, m};
      }
    return std::pair{llms.front(), std::size_t{0}};
  };
  for (const auto r : first_group) {
    for (auto& microbatch : list[r]) {
      auto& parts = microbatch.parts;
      if (parts[0].samples.size() < 2 || draw(random, 0, 1) == 0) continue;
      const auto sample = parts[0].samples.back();
      const auto [replica, place] = place_of(sample);
      parts[0].samples.pop_back();
      parts.push_back({{sample}});
      auto& from = list[replica][place].parts[0].samples;
      if (from.size() < 2) continue;
      from.erase(std::find(from.begin(), from.end(), sample));
      const auto other =
          llms[static_cast<std::size_t>(draw(random, 0, static_cast<int>(llms.size()) - 1))];
      auto& to = list[other].empty() ? list[replica] : list[other];
      const std::size_t later = place + static_cast<std::size_t>(draw(random, 0, 2));
      to[std::min(later, to.size() - 1)].parts.back().samples.push_back(sample);
    }
  }
  return list;
}

/// Takes some samples of each encoder group in pieces, which go into random parts of any replica
/// that has some; now and then a piece is in no part.
inline void random_pieces(const ParallelPlan& plan, IterationInput& input, std::mt19937& random) {
  const auto count = static_cast<std::int32_t>(input.samples.size());
  for (std::size_t g = 0; g + 1 < plan.module_groups.size(); ++g) {
    std::vector<Part*> parts;
    for (std::size_t r = 0; r < plan.replicas.size(); ++r)
      if (plan.replicas[r].group == ModuleGroupId{g})
        for (auto& microbatch : input.microbatches[r])
          for (auto& part : microbatch.parts) parts.push_back(&part);
    for (std::int32_t s = 0; s < count; ++s) {
      std::vector<std::int32_t> pieces;
      for (const ModuleId module : plan.module_groups[g].modules) {
        const auto* items = input.samples[static_cast<std::size_t>(s)].items(module);
        if (items == nullptr) continue;
        for (int begin = 0; begin < static_cast<int>(items->size());) {
          const int size = draw(random, 1, static_cast<int>(items->size()) - begin);
          pieces.push_back(count + static_cast<std::int32_t>(input.pieces.size()));
          input.pieces.push_back({s, module, begin, size});
          begin += size;
        }
      }
      if (pieces.empty() || draw(random, 0, 2) == 0) continue;
      for (Part* part : parts)
        if (part->samples.size() > 1) std::erase(part->samples, s);
      const auto stands = [&](const Part* part) {
        return std::find(part->samples.begin(), part->samples.end(), s) != part->samples.end();
      };
      if (std::any_of(parts.begin(), parts.end(), stands)) continue;  // Its part has no other.
      for (const auto piece : pieces)
        parts[static_cast<std::size_t>(draw(random, 0, static_cast<int>(parts.size()) - 1))]
            ->samples.push_back(piece);
    }
  }
}

}  // namespace troupe::scheduler::testing
