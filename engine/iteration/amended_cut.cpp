#include "engine/iteration/amended_cut.hpp"

#include <algorithm>
#include <set>

#include "runtime/vocabulary/index.hpp"

namespace troupe::engine {

namespace {

std::int32_t items_of(const SampleShape& sample, ModuleId module) {
  const auto* items = sample.items(module);
  return items ? static_cast<std::int32_t>(items->size()) : 0;
}

class Amendment {
 public:
  Amendment(const ParallelPlan& plan, const IterationPlan& planned,
            std::span<const SampleShape> left, const SamplePlaces& places)
      : plan_(plan), planned_(planned), left_(left), places_(places) {
    for (const SamplePiece& piece : planned.pieces) add(piece);
    whole_again_.resize(plan.module_groups.size());
  }

  /// Without what is gone.
  MicrobatchList of(ReplicaId replica) {
    MicrobatchList kept;
    for (const Microbatch& microbatch : planned_.microbatches[replica.index()]) {
      Microbatch left;
      for (const Part& part : microbatch.parts) {
        Part own;
        for (const auto unit : part.samples)
          if (const auto place = place_of(unit, plan_.at(replica).group))
            own.samples.push_back(*place);
        if (!own.samples.empty()) left.parts.push_back(std::move(own));
      }
      if (!left.parts.empty()) kept.push_back(std::move(left));
    }
    return kept;
  }

  std::vector<SamplePiece> pieces() { return std::move(pieces_); }

 private:
  void add(const SamplePiece& piece) {
    units_.emplace_back();
    const auto place = places_[at(piece.sample)];
    if (!place) return;
    const std::int32_t planned = items_of(planned_.samples[at(piece.sample)], piece.module);
    const std::int32_t items = items_of(left_[at(*place)], piece.module);
    const std::int32_t end = piece.first + piece.count;
    const std::int32_t own_end = end == planned ? items : std::min(end, items);
    if (piece.first >= own_end) return;
    units_.back() = static_cast<std::int32_t>(left_.size() + pieces_.size());
    pieces_.push_back({*place, piece.module, piece.first, own_end - piece.first});
  }

  /// What is left of a unit that stood in this group.
  std::optional<std::int32_t> place_of(std::int32_t unit, ModuleGroupId group) {
    if (at(unit) < places_.size()) return places_[at(unit)];
    const std::size_t piece = at(unit) - places_.size();
    const auto sample = places_[at(planned_.pieces[piece].sample)];
    if (units_[piece] || !sample) return units_[piece];
    const auto& modules = plan_.module_groups[group.index()].modules;
    const bool has_items = std::any_of(modules.begin(), modules.end(), [&](ModuleId module) {
      return items_of(left_[at(*sample)], module) > 0;
    });
    if (has_items || !whole_again_[group.index()].insert(*sample).second) return std::nullopt;
    return sample;
  }

  const ParallelPlan& plan_;
  const IterationPlan& planned_;
  std::span<const SampleShape> left_;
  const SamplePlaces& places_;
  std::vector<std::optional<std::int32_t>> units_;  ///< Per planned piece; none: it is gone.
  std::vector<SamplePiece> pieces_;
  std::vector<std::set<std::int32_t>> whole_again_;  ///< Per group.
};

}  // namespace

AmendedCut amend_cut(const ParallelPlan& plan, const IterationPlan& planned,
                     std::span<const SampleShape> left, const SamplePlaces& places) {
  AmendedCut amended;
  amended.pipelines.resize(plan.pipelines.size());
  Amendment amendment(plan, planned, left, places);
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    amended.microbatches.push_back(amendment.of(ReplicaId{r}));
    if (!plan.is_llm(ReplicaId{r})) continue;
    auto& own = amended.pipelines[plan.replicas[r].pipeline.index()];
    for (const Microbatch& microbatch : amended.microbatches.back())
      for (const Part& part : microbatch.parts)
        own.insert(own.end(), part.samples.begin(), part.samples.end());
  }
  for (auto& own : amended.pipelines) std::sort(own.begin(), own.end());
  amended.pieces = amendment.pieces();
  return amended;
}

}  // namespace troupe::engine
