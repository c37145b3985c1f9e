// Widths that follow from a module's neighbours.

#pragma once

#include <vector>

#include "models/family/family.hpp"

namespace troupe::models {

/// What the neighbours of `module` hand to it and want of it; 0 where there is no such module.
Widths widths_around(const ModuleConfig& module, const std::vector<ModuleConfig>& all);

/// Columns of the rows that a module takes: its own word, else what comes. 0: an encoder.
std::int64_t input_width(const ModuleConfig& module, const std::vector<ModuleConfig>& all);

/// Columns of the rows that a module hands to the next; the hidden size for an llm.
std::int64_t output_width(const ModuleConfig& module, const std::vector<ModuleConfig>& all);

}  // namespace troupe::models
