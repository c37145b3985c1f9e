// Measures what the kinds of layers of a model cost on a device, size by size.
//
// Single-threaded but for LibTorch's operator threads; the caller sets those, and keeps the machine
// otherwise idle.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/profiling/kind_bench.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/cost/profile.hpp"

namespace troupe::engine {

/// Kind names of all layers of a model, module by module; `[module][layer]`.
std::vector<std::vector<std::string>> layer_kind_names(const JobSetup& setup);

/// The kinds of a model, each with its first layer, in model order.
std::vector<LayerKind> layer_kinds(const JobSetup& setup);

/// Bounds of a measurement.
struct LayerProfileOptions {
  double budget_s = 20;    ///< For all kinds and sizes together, without what the watch pays.
  double point_s_max = 2;  ///< A kind ends before the size whose forward and backward take longer.
  TokenCount tokens_max = 16384;
  /// Called before each point with its kind, and the share of the budget that is spent.
  std::function<void(const std::string& kind, double share)> on_progress;
};

/// Points of which something disturbed the kept runs are measured again in the end, while `watch`
/// pays; the quieter ones stay. So a disturbance lengthens measuring by what the watch pays at
/// most.
///
/// Measures every kind at 16, 32, 64 ... tokens (`measured_size`), all of them at one size before
/// the next: when the budget is spent, all have come about as far. At a size they take turns, as
/// layers do in a stage
/// (`KindBench::begin`). Each has two sizes at least, whatever they take. In the order of
/// `layer_kinds`. How quiet it was is noted with `watch`, kind by kind.
///
/// Errors: as `KindBench::create` and `layer_fault`, of which kind.
Result<std::vector<scheduler::LayerProfile>> profile_layers(const JobSetup& setup,
                                                            const LayerProfileOptions& options,
                                                            QuietWatch& watch);

}  // namespace troupe::engine
