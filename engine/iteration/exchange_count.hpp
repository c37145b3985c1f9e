// Whether steps were exchanged (`balancer.exchange`), for those who are told.
//
// Values; pure.

#pragma once

#include <cstdint>
#include <optional>

#include "engine/iteration/prediction.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

/// Whether there is something to exchange: some encoder has several replicas.
bool can_exchange(const ParallelPlan& plan);

/// Steps of a job, and how many of them were exchanged.
struct ExchangeCount {
  std::int64_t steps = 0;
  std::int64_t exchanged = 0;
  std::optional<Error> refused = {};  ///< Why the first one could not be that could not.

  void add(const Prediction& step);
};

}  // namespace troupe::engine
