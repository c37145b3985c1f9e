// Work lists of a mask on a GPU: which tiles the attention kernels compute, in what order.
//
// Internal to kernels/.

#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "kernels/gpu/attention.hpp"
#include "kernels/mask_tiles.hpp"

namespace troupe::kernels::gpu {

/// Which blocks are computed in what order, and what each of them meets.
struct TileListTensors {
  at::Tensor order, begin, entries;
};

/// The lists of one mask for one kind of kernel in host memory: what takes time of a host and can
/// be done before a device needs them. Immutable once made.
struct HostLists {
  /// bf16: for the kernels on tensor cores.
  HostLists(const TokenMask& mask, bool bf16);

  bool bf16;
  at::Tensor ranges, words;
  TileListTensors by_query, back_by_query, by_key;
};

/// The same, kept in a device's memory as long as this lives.
class TileLists {
 public:
  /// Copies run on the device's current stream.
  TileLists(const HostLists& made, at::Device device);
  TileLists(const TokenMask& mask, bool bf16, at::Device device)
      : TileLists(HostLists(mask, bf16), device) {}

  /// The lists last made on this thread where they are of the same tiles, kind and device, else new
  /// ones, from those in host memory where the tiles have some of this kind: the layers of a
  /// microbatch share them.
  static std::shared_ptr<const TileLists> of(const std::shared_ptr<const MaskTiles>& tiles,
                                             bool bf16, at::Device device);

  /// Fills in what `attention` reads of the mask.
  void describe(Attention& attention) const;

 private:
  at::Tensor ranges_, words_;
  TileListTensors by_query_, back_by_query_, by_key_;
};

}  // namespace troupe::kernels::gpu
