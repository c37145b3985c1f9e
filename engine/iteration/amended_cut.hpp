// The cut of a batch whose samples turned out otherwise than their headers said: some are bad and
// gone, others have other lengths. Pure.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::engine {

/// Per sample of a batch: its index among those that are left; none: it is gone.
using SamplePlaces = std::vector<std::optional<std::int32_t>>;

struct AmendedCut {
  std::vector<MicrobatchList> microbatches;          ///< Per replica.
  std::vector<SamplePiece> pieces;                   ///< Of the samples that are left.
  std::vector<std::vector<std::int32_t>> pipelines;  ///< As `DealtBatch::pipelines`.
};

/// The microbatches of all replicas without the samples that are gone, and without parts and
/// microbatches that have none left. No sample changes its place otherwise, so that every node has
/// decoded what it will need. Where a sample has other items than were planned, its last piece
/// takes what there is more, and pieces of items that are not there are gone; one without items is
/// whole again, where a piece of it was. An encoder that a cut sample had no items for has none
/// now.
///
/// `left`: what the samples are that have a place. REQUIRES: a place for every planned sample.
AmendedCut amend_cut(const ParallelPlan& plan, const IterationPlan& planned,
                     std::span<const SampleShape> left, const SamplePlaces& places);

}  // namespace troupe::engine
