// What the llm's last layer hands on: a loss of each sample of a part. Who trains adds them up, and
// names samples by the places of their losses: of another shape they would be those of others.
//
// Stateless.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>

#include "runtime/vocabulary/model_graph.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

/// Whether these are the losses of so many samples: [samples], as `models::Layer::forward` asks of
/// the llm's last layer. `of`: the samples in words, for the error, as `part_words`.
/// Errors: internal: no tensor, or of another shape. Names the layer, its module, and both shapes.
Status check_losses(const ModuleSpec& llm, const at::Tensor& losses, std::size_t samples,
                    const std::string& of);

}  // namespace troupe::engine
