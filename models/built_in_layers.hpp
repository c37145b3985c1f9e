// Layers of the built-in families; a family that is added brings its own `make`.
//
// They stand apart from the families themselves because planners link those, without LibTorch. A
// family that is built on one of these makes its layers here, too (examples/distill).

#pragma once

#include <memory>
#include <vector>

#include "models/layer.hpp"
#include "runtime/vocabulary/model_config.hpp"

namespace troupe::models {

/// Layer `index` of this family, in the order of its description.
std::unique_ptr<Layer> make_qwen2_vl(const ModuleConfig& module, int index,
                                     std::vector<Parameter> parameters);
/// The same.
std::unique_ptr<Layer> make_whisper(const ModuleConfig& module, int index,
                                    std::vector<Parameter> parameters);
/// The same.
std::unique_ptr<Layer> make_mlp(const ModuleConfig& module, int index,
                                std::vector<Parameter> parameters);
/// The same.
std::unique_ptr<Layer> make_llama(const ModuleConfig& module, int index,
                                  std::vector<Parameter> parameters);

/// Layer `index` of the built-in family that `module.family` names, with a configuration of its
/// type; nullptr: it is none.
std::unique_ptr<Layer> make_built_in(const ModuleConfig& module, int index,
                                     std::vector<Parameter> parameters);

}  // namespace troupe::models
