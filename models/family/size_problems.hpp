// Checks that several families make of their sizes.

#pragma once

#include <cstdint>
#include <optional>

#include "models/family/family.hpp"

namespace troupe::models {

/// A problem with `count_key` where `count` does not divide `width`; the fix is the divisor nearest
/// to it. REQUIRES: both positive.
std::optional<ConfigProblem> not_divided(const char* count_key, std::int64_t count,
                                         const char* width_key, std::int64_t width);

/// A problem with `vocab_size` where a module that reads text knows fewer ids than the tokenizer
/// gives
/// (`kTokenizerSize`): the model is sound, but no data can be fed to it.
std::optional<ConfigProblem> too_few_tokens(const ModuleConfig& module, const ModuleSizes& sizes);

}  // namespace troupe::models
