// Deferral beyond the published one: exchanges in both directions, and a chain in which every
// microbatch may hand LLM work to the next.
//
// Pure and deterministic. Published pairs even out two microbatches; what a pair has too much of in
// all stays there. A chain passes it on, so that only the grain of the samples remains.

#pragma once

#include <span>

#include "balancer/loads/workload.hpp"

namespace troupe::balancer {

/// Pairs the heaviest microbatch with the lightest and so on, then moves the best subset to the
/// lighter one and takes back up to two of its samples where that comes closer to an even pair.
/// Samples that are taken back run one LLM microbatch before their encoder microbatch's own, so the
/// first LLM microbatch of such a pair waits for both encoder microbatches.
///
/// Order of execution: pairs by descending load, overloaded first; an unpaired one last. The
/// largest LLM load never rises. Cost: O(n * 16384 / 64) plus O(K s^2) for s samples a microbatch.
MicrobatchPlan defer_with_exchange(std::span<const Workload> workloads, SampleGroups encoder);

/// Orders the microbatches so that LLM work waiting never runs out and stays small, then lets each
/// microbatch keep what brings its LLM load closest to the mean of what remains and hand the rest
/// to the next. No sample waits longer than one microbatch; `pairs` names every hand-over.
///
/// Takes `defer_in_pairs` instead where that has the smaller largest load (a few coarse samples),
/// so it never raises the largest LLM load either. Cost: O(n * 16384 / 64 + K log K), plus the
/// pairs'.
MicrobatchPlan defer_in_chain(std::span<const Workload> workloads, SampleGroups encoder);

}  // namespace troupe::balancer
