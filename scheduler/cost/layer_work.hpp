// What the layers of a model compute and move, as their families say: what computed profiles
// (roofline.hpp) and the operations of a step (model_flops.hpp) are made of.
//
// Pure; thread-safe.

#pragma once

#include <cstdint>
#include <vector>

#include "runtime/vocabulary/layer_work.hpp"
#include "runtime/vocabulary/model_config.hpp"
#include "runtime/vocabulary/model_graph.hpp"

namespace troupe::scheduler {

/// Work of every layer of a module, in order: embedding, blocks, head. `input_width` and
/// `output_width`: columns of the rows that come in and go out, where a projector leaves them open.
/// REQUIRES: a module of a known family.
std::vector<LayerWork> layer_works(const ModuleConfig& module, std::int64_t input_width = 0,
                                   std::int64_t output_width = 0);

/// The same for each module of a model, in the graph's order; widths that a projector leaves out
/// come from its neighbours. REQUIRES: `modules` has a configuration for each module of the graph.
std::vector<std::vector<LayerWork>> model_works(const ModelGraph& graph,
                                                const std::vector<ModuleConfig>& modules);

}  // namespace troupe::scheduler
