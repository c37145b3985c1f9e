// Cuts a model of several modules into pipeline stages, one device each, knowing what is frozen
// (Cornstarch, dissertation 3.3.1).
//
// Pure; thread-safe. A backward pass costs the weight gradient of a layer only if its module is
// trainable, and the input gradient only if something trainable lies strictly before the layer, in
// any module. (Eq. 3.3 as printed also counts the first trainable layer itself.)

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/vocabulary/model_graph.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::scheduler {

/// One layer if everything before it and itself were trainable.
struct PlannedLayer {
  double forward_ms = 0;
  double input_grad_ms = 0;
  double weight_grad_ms = 0;
};

struct PlannedModule {
  std::string name;
  bool freeze = false;
  std::vector<std::string> next;  ///< Modules that take its output.
  /// A neighbour whose adjacent stage may also hold layers of this one: the last layers of this
  /// module if it comes before the neighbour, the first if after.
  std::optional<std::string> attach;
  std::vector<PlannedLayer> layers;
};

struct ModuleRun {
  std::int32_t module = 0;  ///< Index into the request's modules.
  LayerRange layers;

  friend bool operator==(const ModuleRun&, const ModuleRun&) = default;
};

struct PlannedStage {
  std::vector<ModuleRun> runs;  ///< In execution order.
  double forward_ms = 0;
  double backward_ms = 0;

  double total_ms() const { return forward_ms + backward_ms; }
};

struct ModulePartition {
  std::vector<PlannedStage> stages;  ///< In topological order.
  double max_ms = 0;                 ///< Slowest stage, forward + backward.
  double step_ms = 0;                ///< Longest path of stages + (microbatches - 1) x max_ms.
};

/// The partition into at most `device_count` stages with the least slowest stage; ties go to the
/// smaller `step_ms`, then to fewer stages, then to the first found (fixed).
///
/// Exact: `attach` is a permission, so every number of layers that may ride along is tried for
/// every attached module, and the rest are chains, for which filling stages greedily is optimal.
/// Cost: O(product of (layers + 1) of attached modules x layers), a few dozen times where the best
/// improves; bounded by `kPartitionWorkMax`.
///
/// Errors:
/// - invalid_argument: no module, one without layers, equal names, an unknown `next` or `attach`
///   (nearest name given), a cycle, an `attach` that is no neighbour or leads back to itself, a
///   time that is negative or not finite, attached modules with too many layers.
/// - infeasible: fewer devices than modules without `attach`; the fix names how many are needed.
Result<ModulePartition> partition_modules(const std::vector<PlannedModule>& modules,
                                          std::int64_t device_count, std::int64_t microbatches);

/// Forward and backward time per module and layer after freezing: what stages sum up.
/// REQUIRES: modules in any order, names of `next` known, no cycle.
std::vector<std::vector<PlannedLayer>> frozen_aware_costs(
    const std::vector<PlannedModule>& modules);

inline constexpr double kPartitionWorkMax = 1e9;

}  // namespace troupe::scheduler
