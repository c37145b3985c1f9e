#include "models/family/built_in.hpp"

#include "models/llama/family.hpp"
#include "models/mlp/family.hpp"
#include "models/qwen2_vl/family.hpp"
#include "models/whisper/family.hpp"

namespace troupe::models {

std::vector<Family> built_in_families() { return {qwen2_vl(), whisper(), mlp(), llama()}; }

}  // namespace troupe::models
