// Initial values of parameters: a function of seed and name, so that every layout, rank and dtype
// starts from the same model.

#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "models/family/description.hpp"

namespace troupe::models {

/// What a tensor is made as, and by how many threads; these change none of its bits.
struct Drawing {
  at::ScalarType dtype = at::kDouble;  ///< kFloat, kBFloat16 or kDouble: the same doubles, rounded.
  int threads = 1;                     ///< At most; fewer where a thread would have little to do.
};

/// The value of parameter `name` for `seed`, on the CPU.
///
/// Element i of a normal tensor is drawn by a counter-based generator (Philox 4x32-10, keyed by a
/// hash of seed and name, counter i / 2) through the Box-Muller transform: any part of a tensor
/// can be made alone. `deviation` is used by Initial::normal only. shape of a sinusoid:
/// [positions, channels], channels even and at least 4. Cost: 20 to 25 ns of a thread per element.
at::Tensor initial_value(std::uint64_t seed, const std::string& name,
                         const std::vector<std::int64_t>& shape, Initial kind, double deviation,
                         Drawing drawing = {});

}  // namespace troupe::models
