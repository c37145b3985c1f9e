// The projector of LLaVA as the rest of the product sees it: two linear layers with GELU between.

#pragma once

#include <cstdint>

#include "models/family/family.hpp"

namespace troupe::models {

/// One layer. Widths that are left out follow from its neighbours.
struct ProjectorConfig {
  std::int32_t input_size = 0;   ///< 0: the output width of the module before it.
  std::int32_t hidden_size = 0;  ///< 0: as output_size.
  std::int32_t output_size = 0;  ///< 0: the llm's hidden_size.

  friend bool operator==(const ProjectorConfig&, const ProjectorConfig&) = default;
};

Family mlp();

}  // namespace troupe::models
