// Measures what one kind of layer costs on a device, size by size.
//
// Runs the very layers that stages run. Single-threaded but for LibTorch's operator threads; the
// caller sets those, and keeps the machine otherwise idle.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/job_setup.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/profile.hpp"

namespace troupe::engine {

/// A kind of layer and where an example of it stands in the model.
struct LayerKind {
  std::string name;  ///< `llm.block`, as `scheduler::layer_works` names it.
  LayerId example;
};

/// Kind names of all layers of a model, module by module; `[module][layer]`.
std::vector<std::vector<std::string>> layer_kind_names(const JobSetup& setup);

/// The kinds of a model, each with its first layer, in model order.
std::vector<LayerKind> layer_kinds(const JobSetup& setup);

/// Bounds of one kind's measurement.
struct LayerProfileOptions {
  double budget_s = 2;     ///< For all sizes together; at least two sizes are measured.
  double point_s_max = 2;  ///< A size that takes longer is the last one.
  TokenCount tokens_max = 16384;
};

/// Measures a kind at 16, 32, 64 ... tokens: medians of several runs after one that warms up.
///
/// Linear part: the layer on rows packed as sequences of at most 64, less the attention in it.
/// Attention: the attention kernel alone on one sequence. The gradient of the input is timed with
/// weight gradients deferred, those after it, as the engine splits a backward; a first layer, which
/// has no rows before it, has all of its backward in the weight gradient. Sizes of the llm's head
/// are trained tokens. Activation bytes: what a forward leaves allocated, output included.
///
/// With one operator thread times are processor times: other programs do not lengthen them.
///
/// Errors: as `models::make_layer`; internal: LibTorch's text.
Result<scheduler::LayerProfile> profile_layer(const JobSetup& setup, const LayerKind& kind,
                                              const LayerProfileOptions& options);

}  // namespace troupe::engine
