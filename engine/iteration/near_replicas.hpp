// Which replica of an encoder works on which sample, so that few rows leave the node where the llm
// wants them, and the phase takes no longer for it.
//
// Source: OrchMLLM section 5.2.2, whose node-wise rearrangement moves whole batches of equal ranks;
// here samples stay where they are wanted as far as balance allows, whatever numbers of replicas
// nodes have.
// Pure and deterministic.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "balancer/loads/first_to_finish.hpp"

namespace troupe::engine {

/// One sample that a phase works on.
struct WantedSample {
  double work = 0;       ///< > 0.
  std::size_t node = 0;  ///< Where its rows are wanted, or its content is: an index into `near`.
  double bytes = 0;      ///< That go between nodes where it is not there, >= 0.
};

/// Per sample its replica, so that none ends after `end_max`; none where this finds no such deal.
///
/// The largest sample first, each to the replica of the node that wants it which would be the first
/// to finish, or where it would end too late, or the node has none, to the first of all.
///
/// `near`: per node its replicas, ascending; may be empty; one may be near to several. `loads`:
/// what replicas have by now; what is dealt is added to them, unless nothing is. Cost: O(samples x
/// (log(samples) + replicas of a node)). REQUIRES: samples by descending work.
std::optional<std::vector<std::size_t>> keep_near(std::span<const WantedSample> samples,
                                                  const std::vector<std::vector<std::size_t>>& near,
                                                  double end_max,
                                                  balancer::FirstToFinish<double>& loads);

/// Changes `chosen` so that fewer bytes go between nodes, and none ends after `end_max` who did not
/// before: a sample that is far goes to its node, alone or for up to two others, each of which goes
/// where it came from, to a node that wants it or to whoever has most room; of those the change
/// that saves most, the sample with the most bytes first, until none saves any. Among up to 16
/// replicas then for up to three others, each of which goes to any replica and may need the next to
/// make way for it there: where samples are few and large hardly one fits where another left.
/// Returns whether any was made.
///
/// Greedy placement leaves 1.5 times what even phases need where samples are few and large.
/// `near`: as above; `before`: loads without these samples. Cost: no pass over what is far begins
/// once `looks` changes were looked at, and one that has begun is ended: what there is room for
/// still goes home; of these looks chains get 5000 at most. Besides O(samples x log(far samples) +
/// replicas x log(replicas)). REQUIRES: a replica of `before` per sample.
bool draw_near(std::span<const WantedSample> samples,
               const std::vector<std::vector<std::size_t>>& near, double end_max,
               const balancer::FirstToFinish<double>& before, std::int64_t looks,
               std::vector<std::size_t>& chosen);

}  // namespace troupe::engine
