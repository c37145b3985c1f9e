#include "engine/iteration/item_ranges.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace troupe::engine {

namespace {

/// Of a replica's share of a round. Post-balancing ends by the largest unit at the latest, so
/// smaller ones would make it more even still; but each piece is a message of its own.
constexpr double kGrain = 0.25;
constexpr std::size_t kPiecesPerReplica = 2;  // With one each the last replica's has all the rest.

double rows_of(const MediaShape& item) { return static_cast<double>(item.hidden_rows); }

double rows_of(std::span<const MediaShape> items) {
  return std::accumulate(items.begin(), items.end(), 0.0,
                         [](double sum, const MediaShape& item) { return sum + rows_of(item); });
}

/// Consecutive ranges of about as many rows each, at most `count`.
void append_ranges(std::span<const MediaShape> items, std::size_t count, SamplePiece piece,
                   std::vector<SamplePiece>& pieces) {
  const double total = rows_of(items);
  double before = 0;
  std::size_t range = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const double middle = before + rows_of(items[i]) / 2;
    before += rows_of(items[i]);
    // Items without rows may be the last ones.
    const auto own =
        total > 0 ? std::min(count - 1,
                             static_cast<std::size_t>(middle / total * static_cast<double>(count)))
                  : 0;
    if (i == 0 || own != range) {
      piece.first = static_cast<std::int32_t>(i);
      piece.count = 0;
      pieces.push_back(piece);
    }
    range = own;
    ++pieces.back().count;
  }
}

/// A teacher reads whole samples, so that a group with one does.
bool may_cut(const ParallelPlan& plan, const ModuleGroup& group) {
  return std::ranges::none_of(group.modules, [&](ModuleId module) {
    return plan.model.at(module).kind == ModuleKind::teacher;
  });
}

/// The pieces of one sample for the encoders of a group; none where it stays whole.
std::vector<SamplePiece> pieces_of(const ModuleGroup& group, const SampleShape& shape,
                                   std::int32_t sample, std::size_t count) {
  double all_rows = 0;
  for (const ModuleId module : group.modules)
    if (const auto* items = shape.items(module)) all_rows += rows_of(*items);
  std::vector<SamplePiece> pieces;
  for (const ModuleId module : group.modules) {
    const auto* items = shape.items(module);
    if (items == nullptr) continue;
    const double share = all_rows > 0 ? rows_of(*items) / all_rows : 1;
    const auto own = std::lround(share * static_cast<double>(count));
    append_ranges(*items, static_cast<std::size_t>(std::max(1L, own)), {sample, module, 0, 0},
                  pieces);
  }
  if (pieces.size() < 2) pieces.clear();
  return pieces;
}

}  // namespace

std::vector<SamplePiece> cut_into_pieces(const ParallelPlan& plan,
                                         std::span<const SampleShape> samples,
                                         std::span<const PhaseWork> phases, std::int64_t rounds) {
  std::vector<SamplePiece> pieces;
  for (std::size_t g = 0; g + 1 < plan.module_groups.size(); ++g) {
    const PhaseWork& phase = phases[g];
    const std::size_t replicas = phase.shares.size();
    if (replicas < 2 || !may_cut(plan, plan.module_groups[g])) continue;
    const double total = std::accumulate(phase.samples.begin(), phase.samples.end(), 0.0);
    const double grain =
        kGrain * total / static_cast<double>(replicas) / static_cast<double>(rounds);
    for (std::size_t s = 0; s < samples.size(); ++s) {
      if (!(phase.samples[s] > grain)) continue;
      const double grains = std::ceil(phase.samples[s] / grain);
      const auto count = std::min(kPiecesPerReplica * replicas, static_cast<std::size_t>(grains));
      const auto own =
          pieces_of(plan.module_groups[g], samples[s], static_cast<std::int32_t>(s), count);
      pieces.insert(pieces.end(), own.begin(), own.end());
    }
  }
  return pieces;
}

bool names_pieces(const MicrobatchList& list, std::size_t samples) {
  for (const Microbatch& microbatch : list)
    for (const Part& part : microbatch.parts)
      for (const auto unit : part.samples)
        if (static_cast<std::size_t>(unit) >= samples) return true;
  return false;
}

}  // namespace troupe::engine
