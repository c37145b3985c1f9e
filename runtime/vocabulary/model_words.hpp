// How messages and files write values of a model.
//
// Pure.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/vocabulary/model_config.hpp"

namespace troupe {

/// `fp32`, as the job file says it.
inline const char* dtype_word(Dtype dtype) {
  return dtype == Dtype::fp32 ? "fp32" : dtype == Dtype::bf16 ? "bf16" : "fp64";
}

/// `[24, 16]`.
inline std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t d = 0; d < shape.size(); ++d) text += (d ? ", " : "") + std::to_string(shape[d]);
  return text + "]";
}

}  // namespace troupe
