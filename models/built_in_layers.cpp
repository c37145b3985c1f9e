#include "models/built_in_layers.hpp"

#include <array>
#include <string_view>
#include <utility>

namespace troupe::models {

namespace {

using Make = std::unique_ptr<Layer> (*)(const ModuleConfig&, int, std::vector<Parameter>);

constexpr std::array<std::pair<std::string_view, Make>, 4> kMakers{{{"qwen2-vl", make_qwen2_vl},
                                                                    {"whisper", make_whisper},
                                                                    {"mlp", make_mlp},
                                                                    {"llama", make_llama}}};

}  // namespace

std::unique_ptr<Layer> make_built_in(const ModuleConfig& module, int index,
                                     std::vector<Parameter> parameters) {
  for (const auto& [family, make] : kMakers)
    if (family == module.family) return make(module, index, std::move(parameters));
  return nullptr;
}

}  // namespace troupe::models
