// Numbers of the plan as places of containers.

#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe {

/// Plans count in 32-bit numbers, containers in sizes. REQUIRES: index >= 0.
constexpr std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

}  // namespace troupe
