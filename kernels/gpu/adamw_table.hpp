// Which elements of which tensor each thread block of a launch of AdamW steps: a table that travels
// among the kernel's parameters, so that nothing is copied to the device before it.
//
// Internal to kernels/gpu. Pure; without CUDA and without LibTorch.

#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/gpu/adamw.hpp"

namespace troupe::kernels::gpu {

/// Elements of a thread block.
inline constexpr std::int64_t kAdamWElements = 1024;
/// Tensors of a launch: with these a kernel's parameters stay within the 4 KiB that all GPUs take.
inline constexpr std::int32_t kAdamWTensors = 64;

struct AdamWTable {
  std::int32_t size = 0;  ///< Tensors, each of one element at least.
  /// Thread blocks, counted over all tensors, up to the end of each one: ascending.
  std::array<std::int32_t, kAdamWTensors> ends{};
  std::array<bool, kAdamWTensors> in_vectors{};  ///< Begins with a whole vector, everywhere.
  std::array<AdamWTensor, kAdamWTensors> tensors{};

  constexpr std::int32_t blocks() const { return size == 0 ? 0 : ends[size - 1]; }
};

/// Elements of one tensor.
struct AdamWPiece {
  std::int32_t tensor = 0;
  std::int64_t begin = 0, end = 0;
};

/// What a thread block steps. REQUIRES: 0 <= block < table.blocks().
constexpr AdamWPiece piece_of(const AdamWTable& table, std::int32_t block) {
  std::int32_t low = 0, high = table.size - 1;  // The first that ends behind the block.
  while (low < high) {
    const std::int32_t middle = (low + high) / 2;
    if (table.ends[middle] > block)
      high = middle;
    else
      low = middle + 1;
  }
  const std::int32_t first = low == 0 ? 0 : table.ends[low - 1];
  const std::int64_t begin = static_cast<std::int64_t>(block - first) * kAdamWElements;
  const std::int64_t count = table.tensors[low].count, end = begin + kAdamWElements;
  return {low, begin, end < count ? end : count};
}

/// Whether all that there is of a tensor begins with a whole vector of 16 bytes.
inline bool begins_with_vectors(const AdamWTensor& x) {
  const std::array<const void*, 5> all{x.weight, x.mean, x.square, x.gradient, x.rounded};
  return std::ranges::all_of(
      all, [](const void* begin) { return reinterpret_cast<std::uintptr_t>(begin) % 16 == 0; });
}

/// The tables of as few launches as there must be, in the order given; tensors without elements
/// are in none.
inline std::vector<AdamWTable> adamw_tables(std::span<const AdamWTensor> tensors) {
  std::vector<AdamWTable> tables;
  for (const AdamWTensor& tensor : tensors) {
    if (tensor.count == 0) continue;
    if (tables.empty() || tables.back().size == kAdamWTensors) tables.emplace_back();
    AdamWTable& table = tables.back();
    const auto blocks =
        static_cast<std::int32_t>((tensor.count + kAdamWElements - 1) / kAdamWElements);
    const auto at = static_cast<std::size_t>(table.size);
    table.ends[at] = table.blocks() + blocks;
    table.in_vectors[at] = begins_with_vectors(tensor);
    table.tensors[at] = tensor;
    ++table.size;
  }
  return tables;
}

}  // namespace troupe::kernels::gpu
