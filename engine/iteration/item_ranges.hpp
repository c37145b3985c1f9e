// Which samples of a batch are taken in pieces by which encoders, before these are balanced.
//
// Pure and deterministic.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/iteration/phase_exchange.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/sample_pieces.hpp"

namespace troupe::engine {

/// Pieces of samples that may make a phase uneven: those that take more of a module group than a
/// quarter of what one of its replicas does in a round, if they have several items there. Groups
/// with one replica, and the llm, take samples whole. Whether pieces are dealt instead of their
/// samples is for who deals: a phase may be even without.
///
/// A sample gets as many pieces as it has quarters, at most two for each replica: ranges of
/// consecutive items of about as many rows, apart for each encoder of the group, which has one at
/// least. Ascending by group, sample, module and item.
///
/// `phases`: per module group, of whole samples. `rounds`: encoder microbatches of an llm replica;
/// >= 1. Cost: O(samples + items of those that are cut) per group.
std::vector<SamplePiece> cut_into_pieces(const ParallelPlan& plan,
                                         std::span<const SampleShape> samples,
                                         std::span<const PhaseWork> phases, std::int64_t rounds);

/// Whether some part has a piece of a sample. `samples`: of the iteration, all of them.
bool names_pieces(const MicrobatchList& list, std::size_t samples);

}  // namespace troupe::engine
