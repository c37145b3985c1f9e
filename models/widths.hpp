// Widths that follow from a module's neighbours.

#pragma once

#include <vector>

#include "runtime/vocabulary/model_config.hpp"

namespace troupe::models {

/// Input, hidden and output width of a projector, with zeros filled in from the module before it
/// and from the llm. 0 where there is no such module.
ProjectorConfig resolve_projector(const ModuleConfig& module, const std::vector<ModuleConfig>& all);

/// Columns of the rows that a module hands to the next; the hidden size for an llm.
std::int32_t output_width(const ModuleConfig& module, const std::vector<ModuleConfig>& all);

}  // namespace troupe::models
