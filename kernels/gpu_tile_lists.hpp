// Work lists of a mask on a GPU: which tiles the attention kernels compute, in what order.
//
// Internal to kernels/.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/gpu/attention.hpp"
#include "kernels/mask_tiles.hpp"

namespace troupe::kernels::gpu {

/// Which blocks are computed in what order, and what each of them meets.
template <class Numbers>
struct BlockOrder {
  Numbers order, begin, entries;
};

/// The lists of one mask for one kind of kernel in host memory: what takes time of a host and can
/// be done before a device needs them. Immutable once made. Not in memory of LibTorch's: a forward
/// that counts that would be told of what it lets go of, and not that another thread has made it.
struct HostLists {
  using Order = BlockOrder<std::vector<std::int32_t>>;

  /// bf16: for the kernels on tensor cores.
  HostLists(const TokenMask& mask, bool bf16);

  bool bf16;
  std::vector<std::int32_t> ranges;  ///< Two for each token.
  std::vector<std::int64_t> words;
  Order by_query;  ///< Empty without bf16, where it is `back_by_query`.
  Order back_by_query, by_key;
};

/// The same, kept in a device's memory as long as this lives.
class TileLists {
 public:
  /// Copies run on the device's current stream. On a host nothing is copied, and `made` kept.
  TileLists(const std::shared_ptr<const HostLists>& made, at::Device device);
  TileLists(const TokenMask& mask, bool bf16, at::Device device)
      : TileLists(std::make_shared<const HostLists>(mask, bf16), device) {}

  /// The lists last made on this thread where they are of the same tiles, kind and device, else new
  /// ones, from those in host memory where the tiles have some of this kind: the layers of a
  /// microbatch share them.
  static std::shared_ptr<const TileLists> of(const std::shared_ptr<const MaskTiles>& tiles,
                                             bool bf16, at::Device device);

  /// Fills in what `attention` reads of the mask.
  void describe(Attention& attention) const;

 private:
  at::Tensor ranges_, words_;
  BlockOrder<at::Tensor> by_query_, back_by_query_, by_key_;
};

}  // namespace troupe::kernels::gpu
