// How many samples of a batch each pipeline gets, by the speed that plans of earlier batches
// predict for it: the speed of the profile, and with `balancer.adaptive_correction` the measured
// one, since predictions follow it then. Later batches weigh more.
//
// Deterministic: the deal of a batch depends on batches that are planned in any case before it is
// decoded, so every run of a job deals alike. Single owner, not thread-safe.

#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "runtime/vocabulary/job_progress.hpp"

namespace troupe::engine {

class Dealing {
 public:
  /// The deal of batch b looks at batches up to b - `lag`. REQUIRES: pipelines >= 1, lag >= 1.
  Dealing(std::size_t pipelines, std::int64_t lag) : pipelines_(pipelines), lag_(lag) {}

  /// Samples per pipeline of a batch of `size`: as eq. 2.6 (scheduler/distribute.hpp) with the time
  /// per unit of work of each pipeline; even while nothing is known, or for fewer samples than
  /// pipelines.
  std::vector<std::int64_t> counts(std::int64_t batch, std::int64_t size) const;

  using Share = PipelineShare;
  /// Notes a planned batch. Batches come in order; one with a pipeline without work is left out.
  void note(std::int64_t batch, const std::vector<Share>& shares);

  /// What is known with this batch; empty: nothing was noted of it.
  std::vector<Share> known(std::int64_t batch) const;
  /// Goes on from what was known in an earlier run; ignored where it had other pipelines.
  void restore(const std::vector<DealNote>& notes);

 private:
  std::size_t pipelines_;
  std::int64_t lag_;
  std::map<std::int64_t, std::vector<Share>> sums_;  ///< Weighted, up to and with a batch.
};

}  // namespace troupe::engine
