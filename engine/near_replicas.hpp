// Which replica of an encoder works on which sample, so that few rows leave the node where the llm
// wants them, and no replica gets more to do for it.
//
// Source: OrchMLLM section 5.2.2, whose node-wise rearrangement moves whole batches of equal ranks;
// here samples stay where they are wanted as far as balance allows, whatever numbers of replicas
// nodes have.
// Pure and deterministic.

#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "balancer/first_to_finish.hpp"

namespace troupe::engine {

/// One sample that a phase works on.
struct WantedSample {
  double work = 0;       ///< > 0.
  std::size_t node = 0;  ///< Where its rows are wanted: an index into `near`.
};

/// Per sample its replica, so that none ends after `end_max`; none where this finds no such deal.
///
/// Every sample first goes to a replica of the node that wants it, the largest first, each to the
/// first to finish; replicas that would end too late give samples away, each time the smallest that
/// is enough, or their largest; these, and those whose node has no replica, go to the first to
/// finish of all.
///
/// `near`: per node its replicas, ascending; may be empty. `loads`: what replicas have by now; what
/// is dealt is added to them, unless nothing is.
/// Cost: O(samples x (log(samples) + replicas of a node)).
/// REQUIRES: samples by descending work.
std::optional<std::vector<std::size_t>> keep_near(std::span<const WantedSample> samples,
                                                  const std::vector<std::vector<std::size_t>>& near,
                                                  double end_max,
                                                  balancer::FirstToFinish<double>& loads);

}  // namespace troupe::engine
