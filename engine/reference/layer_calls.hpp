// Layers as references run them. One may be a user's: while it does not return it can be named
// (runtime/plugins/user_calls.hpp), with what is trained there.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/layer.hpp"
#include "runtime/vocabulary/model_graph.hpp"

namespace troupe::engine {

/// What a reference trains, in words: `sample 'a' in step 3`, of more `samples 'a', 'b' in step 3`;
/// at most three are named.
std::string work_words(const std::vector<std::string>& ids, std::int64_t step);

/// Runs all layers of a module, one after the other. `work`: as `work_words`.
/// Throws what they throw.
at::Tensor run_layers(const ModuleSpec& module, std::vector<std::unique_ptr<models::Layer>>& layers,
                      at::Tensor rows, const models::PackedBatch& batch, const std::string& work);

/// What the backward of layers is called while it runs: of which one nobody knows.
std::string backward_words(const std::string& work);

}  // namespace troupe::engine
