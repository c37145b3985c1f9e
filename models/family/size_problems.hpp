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

}  // namespace troupe::models
