// Layers of the built-in families; a family that is added brings its own `make`.
//
// They stand apart from the families themselves because planners link those, without LibTorch.
// Internal to models/.

#pragma once

#include <memory>
#include <vector>

#include "models/layer.hpp"
#include "runtime/vocabulary/model_config.hpp"

namespace troupe::models {

std::unique_ptr<Layer> make_qwen2_vl(const ModuleConfig& module, int index,
                                     std::vector<Parameter> parameters);
std::unique_ptr<Layer> make_whisper(const ModuleConfig& module, int index,
                                    std::vector<Parameter> parameters);
std::unique_ptr<Layer> make_mlp(const ModuleConfig& module, int index,
                                std::vector<Parameter> parameters);
std::unique_ptr<Layer> make_llama(const ModuleConfig& module, int index,
                                  std::vector<Parameter> parameters);

/// Layer `index` of a built-in family. REQUIRES: it is one.
std::unique_ptr<Layer> make_built_in(const ModuleConfig& module, int index,
                                     std::vector<Parameter> parameters);

}  // namespace troupe::models
