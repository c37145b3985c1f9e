// Rotary positions: the rotation of query and key heads, and the tables of its angles.

#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

namespace troupe::kernels {

/// Cosines and sines of every row's angles.
struct RotaryTable {
  at::Tensor cosine;  ///< [rows, head_dim / 2], fp64 for fp64 models, else fp32.
  at::Tensor sine;    ///< As `cosine`.
};

/// Angles of a language model: each row's position in its sample (from 0) times
/// theta^(-2j / head_dim) for j < head_dim / 2. Computed in double, then rounded once.
RotaryTable text_rotary(const std::vector<std::int64_t>& positions, std::int64_t head_dim,
                        double theta, at::ScalarType dtype, at::Device device);

/// Angles of a vision transformer: the first head_dim / 4 from the patch's row, the others from its
/// column, each with theta^(-4j / head_dim). Patches are enumerated in blocks of merge x merge, the
/// blocks and the patches within each row by row. heights and widths: per image, in patches.
RotaryTable grid_rotary(const std::vector<std::int64_t>& heights,
                        const std::vector<std::int64_t>& widths, std::int64_t merge,
                        std::int64_t head_dim, double theta, at::ScalarType dtype,
                        at::Device device);

/// Turns each pair (j, j + head_dim / 2) of every head by its row's angle j, in the table's type,
/// and rounds once. heads: [rows, heads, head_dim], any strides with a dense last dimension.
at::Tensor rotate(const at::Tensor& heads, const RotaryTable& table);

}  // namespace troupe::kernels
