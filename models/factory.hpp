// From the job file's module configurations to layers and to the graph that planners see.
//
// Pure: the same configuration, seed and dtype give the same values anywhere. Thread-safe.

#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "models/layer.hpp"
#include "runtime/vocabulary/model_config.hpp"
#include "runtime/vocabulary/model_graph.hpp"
#include "runtime/vocabulary/model_state.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::models {

/// How a layer's tensors are made.
struct LayerOptions {
  at::ScalarType dtype = at::kFloat;  ///< kFloat, kBFloat16 or kDouble.
  at::Device device = at::Device("cpu");
  std::uint64_t seed = 0;  ///< `job.seed`; initial values depend on it and on names only.
  bool trainable = true;   ///< False for a frozen module.
  /// False: values are whatever the memory held; who makes the layer writes them.
  bool draws = true;
  int threads = 1;  ///< That draw values, at most.
  /// Layers that can be (`is_recomputed`) keep their input alone and run again in a backward.
  bool recompute = false;
  /// Names of the parameters that have values; none: all. Others have names alone, and who makes
  /// the layer gives it those that it keeps.
  std::optional<std::set<std::string>> only = {};
};

/// Builds one layer of `module` with its initial values.
///
/// `all` are all modules of the model (widths of projectors follow from their neighbours).
/// `layer_index` counts as in `ModelGraph`: 0 is the embedding layer, the last one merger or head.
///
/// Errors:
/// - invalid_argument: everything `build_graph` reports about this module; no such layer; a family
///   that makes none, or throws, or whose layer has not the parameters that `describe` lists.
/// - unavailable: no memory for it, or no such device.
Result<std::unique_ptr<Layer>> make_layer(const ModuleConfig& module,
                                          const std::vector<ModuleConfig>& all, int layer_index,
                                          const LayerOptions& options);

/// Orders the modules (upstream first, in the given order where free; the llm last), names their
/// layers and counts their parameters. A tied embedding is counted in `tied`, not in its layers.
///
/// Errors:
/// - invalid_argument: not exactly one llm; a name twice, or empty; a `next` that does not exist,
///   leads back, or is missing; an unknown family, or one of another kind; sizes that do not fit
///   (heads, widths). Names the module, the field, both values, and the fix.
Result<ModelGraph> build_graph(const std::vector<ModuleConfig>& modules);

/// Every parameter of the model, each logical one once, in model order. REQUIRES: `graph` was built
/// from `modules`.
std::vector<ParameterInfo> list_parameters(const std::vector<ModuleConfig>& modules,
                                           const ModelGraph& graph);

/// The rule by which the module's family moves a parameter with an `own_update`.
UpdateRule update_rule(const ModuleConfig& module);

/// c10's name for a job file's dtype.
at::ScalarType to_torch(Dtype dtype);

}  // namespace troupe::models
