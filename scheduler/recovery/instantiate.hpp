// Chooses which templates to instantiate, and how often, so that all nodes work and an iteration
// ends as early as possible (Oobleck, dissertation 2.4.2).
//
// Pure; thread-safe. Combinations are counted, not listed: 500 nodes with sizes 2..60 have 6.6e19.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/vocabulary/result.hpp"

namespace troupe::scheduler {

struct TemplateSpeed {
  std::int64_t node_count = 1;  ///< >= 1; sizes are distinct.
  double microbatch_ms = 0;     ///< T of eq. 2.6; > 0.
};

struct InstantiateRequest {
  std::vector<TemplateSpeed> templates;
  std::int64_t node_count = 1;
  std::int64_t fault_tolerance = 0;
  std::int64_t global_batch = 1;
  std::int64_t microbatch_size = 1;
};

struct PipelineShare {
  std::int64_t node_count = 0;
  std::int64_t microbatches = 0;

  friend auto operator<=>(const PipelineShare&, const PipelineShare&) = default;
};

struct Instantiation {
  std::string combinations;              ///< Number of valid combinations, decimal.
  std::vector<PipelineShare> pipelines;  ///< Ascending by nodes, then descending by microbatches.
  double iteration_ms = 0;               ///< Largest N_i x T_i after `distribute`.
  /// No combination can be faster, even if microbatches were placed for the least maximum instead
  /// of by eq. 2.6.
  double lower_bound_ms = 0;
  bool proven = false;  ///< True: no combination beats `iteration_ms` under eq. 2.6.
};

/// Among all combinations that use every node with at least f + 1 pipelines, one whose largest
/// N_i x T_i is least after `distribute`; ties go to the first in search order (fixed).
///
/// A dynamic program over nodes finds the least maximum that any placement could reach; then
/// combinations that could still win are examined under eq. 2.6, best bound first, until none is
/// left (`proven`) or `kInstantiateLeavesMax` were examined. The search stops at once when the
/// bound is met, which is the rule where there are many combinations.
/// Cost: O(nodes x templates x (f + 1)) per bound tried; 500 nodes with sizes 2..60: well below 1
/// s.
///
/// Errors:
/// - invalid_argument: no template, equal sizes, a time that `check_speed` refuses, a count out of
///   range, nodes x templates x (f + 1) beyond `kInstantiateStatesMax`.
/// - infeasible: no combination uses all nodes with f + 1 pipelines (nearest node count named), or
///   the batch cannot be split (nearest batch named).
Result<Instantiation> instantiate(const InstantiateRequest& request);

inline constexpr std::int64_t kInstantiateStatesMax = 20'000'000;
inline constexpr std::int64_t kInstantiateLeavesMax = 20'000;
/// Steps of `distribute_groups` that count as one combination more.
inline constexpr std::int64_t kInstantiateLeafWork = 50'000;
inline constexpr std::int64_t kInstantiateMicrobatchesMax = 1'000'000'000;

/// Number of ways to use exactly `node_count` nodes with at least `pipelines_min` pipelines of the
/// given distinct sizes (eq. 2.5), as a decimal number of any length.
std::string count_combinations(const std::vector<std::int64_t>& sizes, std::int64_t node_count,
                               std::int64_t pipelines_min);

}  // namespace troupe::scheduler
