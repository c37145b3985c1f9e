// Whether steps were exchanged (`balancer.exchange`), for those who are told.
//
// Values; pure.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/iteration/prediction.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::engine {

/// Whether a phase may be exchanged: it is an encoder's, and has several replicas.
bool can_exchange(const ParallelPlan& plan, ModuleGroupId group);

/// Whether there is something to exchange: some encoder has several replicas.
bool can_exchange(const ParallelPlan& plan);

/// What became of one phase in steps that were exchanged.
struct PhaseExchanges {
  std::int64_t exchanged = 0;
  std::int64_t refused = 0;       ///< It had no room; else it would have been no more even.
  std::optional<Error> why = {};  ///< The first time that it had none.
};

/// Steps of a job, and how many of them were exchanged.
struct ExchangeCount {
  std::int64_t steps = 0;
  std::int64_t exchanged = 0;  ///< In all phases or some, or as far as any would be more even.
  /// Why the first one could not be that could not, in all its phases or some.
  std::optional<Error> refused = {};
  std::optional<Error> prevented = {};      ///< Why the first one could not be in any.
  std::vector<PhaseExchanges> phases = {};  ///< Per module group.

  void add(const Prediction& step);
};

}  // namespace troupe::engine
