// The attention of a layer alone, as its kind runs it: by the bitfield kernel where the llm attends
// by modality, else by the fused one.
//
// A value; thread-safe.

#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/mask_tiles.hpp"
#include "runtime/vocabulary/layer_work.hpp"

namespace troupe::engine {

class MeasuredAttention {
 public:
  /// Over sequences of these lengths, packed: by modality of text, whose pairs are those of causal
  /// attention; where not `causal`, each row sees its whole sequence. `lists`: those that a GPU
  /// reads (`gpu_lists_of`), made here: in training they are there before a forward.
  /// REQUIRES: lengths >= 1, 2^30 rows at most.
  MeasuredAttention(const AttentionShape& shape, std::vector<std::int64_t> segments, bool causal,
                    kernels::GpuLists lists);

  /// query, key, value: as the kernels take them, rows of all sequences. Throws: as they do.
  at::Tensor operator()(const std::array<at::Tensor, 3>& inputs) const;

 private:
  std::vector<std::int64_t> segments_;
  bool causal_;
  std::shared_ptr<const kernels::MaskTiles> mask_;  // Null: the fused kernel.
};

}  // namespace troupe::engine
