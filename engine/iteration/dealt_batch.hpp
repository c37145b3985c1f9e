// The samples of one step, before they are cut. A value.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "balancer/loads/workload.hpp"
#include "runtime/vocabulary/sample_shape.hpp"
#include "runtime/vocabulary/units.hpp"
#include "scheduler/cost/sample_costs.hpp"

namespace troupe::engine {

struct DealtBatch {
  std::int64_t step = 1;
  EpochNumber epoch_number = 0;
  std::vector<SampleShape> samples;  ///< In training order.
  /// Per pipeline: indices of its samples, ascending. Every sample once.
  std::vector<std::vector<std::int32_t>> pipelines = {};
  /// The same by llm work alone, for a plan whose encoders share the batch out among themselves;
  /// empty: as `pipelines`.
  std::vector<std::vector<std::int32_t>> by_phase = {};
  std::shared_ptr<scheduler::SampleSums> sums = {};  ///< Of `samples`; null: to be made.
  std::vector<balancer::Workload> weights = {};      ///< As `weigh_samples`; empty: likewise.
};

}  // namespace troupe::engine
