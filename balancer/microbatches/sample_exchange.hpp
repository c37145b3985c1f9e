// Samples that change places between microbatches while a score from the microbatches' loads gets
// better: the last step of `auto`, where dealing samples to planned sizes leaves them off.
//
// Pure and deterministic.

#pragma once

#include <cstdint>
#include <span>

#include "balancer/loads/workload.hpp"
#include "balancer/microbatches/size_search.hpp"

namespace troupe::balancer {

struct ExchangeOptions {
  std::uint64_t seed = 0;
  std::int64_t trials_max = 0;  ///< Of these some are no change and do not ask the score.
};

/// Moves a sample to another microbatch or swaps two, chosen at random, and keeps what does not
/// raise `score` (of the loads in milliseconds, [groups]) by more than a little, ever less towards
/// the end. Gives the best microbatches met, never worse by the score than `groups`; none of them
/// is empty that was not. Ends early when the score returns nothing.
/// Cost: the score, some nanoseconds besides and 20 bytes of memory per change that was kept.
SampleGroups exchange_samples(std::span<const Workload> workloads, SampleGroups groups,
                              const ExchangeOptions& options, const SizeScore& score);

}  // namespace troupe::balancer
