// Work lists of a mask on a GPU: which tiles the attention kernels compute, in what order.
//
// Internal to kernels/.

#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "kernels/gpu/attention.hpp"
#include "kernels/mask_tiles.hpp"

namespace troupe::kernels::gpu {

/// The lists of one mask for one kind of kernel, kept in a device's memory as long as this lives.
class TileLists {
 public:
  /// bf16: for the kernels on tensor cores. Copies run on the device's current stream.
  TileLists(const TokenMask& mask, bool bf16, at::Device device);

  /// The lists last made on this thread where they are of the same tiles, kind and device, else new
  /// ones: the layers of a microbatch share them.
  static std::shared_ptr<const TileLists> of(const std::shared_ptr<const MaskTiles>& tiles,
                                             bool bf16, at::Device device);

  /// Fills in what `attention` reads of the mask.
  void describe(Attention& attention) const;

 private:
  at::Tensor ranges_, words_;
  struct Lists {
    at::Tensor order, begin, entries;
  };
  Lists by_query_, back_by_query_, by_key_;
};

}  // namespace troupe::kernels::gpu
