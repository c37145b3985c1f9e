// Initial values of parameters: a function of seed and name, so that every layout, rank and dtype
// starts from the same model.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "models/family/description.hpp"

namespace troupe::models {

/// The value of parameter `name` for `seed`, in fp64 on the CPU.
///
/// Element i of a normal tensor is drawn by a counter-based generator (Philox 4x32-10, keyed by a
/// hash of seed and name, counter i / 2) through the Box-Muller transform: any part of a tensor
/// could be made alone. `deviation` is used by Initial::normal only. shape of a sinusoid:
/// [positions, channels], channels even and at least 4.
at::Tensor initial_value(std::uint64_t seed, const std::string& name,
                         const std::vector<std::int64_t>& shape, Initial kind, double deviation);

}  // namespace troupe::models
