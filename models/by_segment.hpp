// Layers that treat every segment of a part by itself, which are packed end to end.

#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace troupe::models {

/// What `f(begin, length)` makes of the rows of each segment, one below the other. `lengths`: of
/// the segments, end to end. `none`: what there is of no segments, of the same columns and no rows.
template <class F>
at::Tensor by_segment(const std::vector<std::int64_t>& lengths, at::Tensor none, F&& f) {
  std::vector<at::Tensor> made{std::move(none)};
  std::int64_t begin = 0;
  for (const std::int64_t length : lengths) {
    made.push_back(f(begin, length));
    begin += length;
  }
  return at::cat(made);
}

}  // namespace troupe::models
