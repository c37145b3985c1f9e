// What every attention over heads of packed rows asks of its arguments.
//
// Internal to kernels/.

#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>

namespace troupe::kernels {

/// Sizes of one attention. Query head j reads key head j / group().
struct HeadSizes {
  std::int64_t rows = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t dim = 0;

  std::int64_t group() const { return heads / kv_heads; }
  double scale() const;  ///< 1 / sqrt(dim).
};

/// Sizes of query [rows, heads, dim] and key, value [rows, kv_heads, dim].
///
/// Errors (c10::ValueError): another number of dimensions, rows, head sizes, types or devices than
/// each other's; rows other than `rows`; heads that kv_heads does not divide; a head size of 0; a
/// type other than fp32, bf16 and fp64.
HeadSizes check_heads(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                      std::int64_t rows);

/// The type to compute in: fp32 for bf16, else the own one.
inline at::ScalarType working_type(const at::Tensor& heads) {
  return heads.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

/// In the type to compute in, each head's elements end to end.
at::Tensor as_working(const at::Tensor& heads);

}  // namespace troupe::kernels
