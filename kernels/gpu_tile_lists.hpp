// Work lists of a mask on a GPU: which tiles the attention kernels compute, in what order, and in
// how many parts.
//
// Internal to kernels/.

#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/gpu/attention.hpp"
#include "kernels/gpu_sub_blocks.hpp"
#include "kernels/mask_tiles.hpp"

namespace troupe::kernels::gpu {

/// What each block meets.
template <class Numbers>
struct BlockEntries {
  Numbers begin, entries;
  std::vector<std::int32_t> lengths;  ///< Entries by block, on the host: what blocks are cut by.
};

/// The lists of one mask for one kind of kernel in host memory: what takes time of a host and can
/// be done before a device needs them. Immutable once made. Not in memory of LibTorch's: a forward
/// that counts that would be told of what it lets go of, and not that another thread has made it.
struct HostLists {
  using Entries = BlockEntries<std::vector<std::int32_t>>;

  /// bf16: for the kernels on tensor cores.
  HostLists(const TokenMask& mask, bool bf16);

  /// So many were made in this process: shows who makes some in a forward. From any thread.
  static std::int64_t made_count();

  bool bf16;
  std::vector<std::int32_t> ranges;  ///< Two for each token.
  std::vector<std::int64_t> words;
  Entries by_query;  ///< Empty without bf16, where it is `back_by_query`.
  Entries back_by_query, by_key;
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

  /// Fills in what `attention` reads of the mask, with blocks cut for its heads and places: those
  /// two are read. The first call for such numbers cuts them and sends what it cut on the current
  /// stream; it is kept as long as this lives. Thread-safe.
  void describe(Attention& attention) const;

 private:
  using Entries = BlockEntries<at::Tensor>;
  struct Cut {
    at::Tensor parts, splits;
    std::int64_t slots = 0;
  };
  struct Cuts {
    Cut by_query, back_by_query, by_key;
  };
  using Numbers = std::array<std::int64_t, 5>;  // Heads, kv_heads, places.

  Cut cut(const Entries& lists, std::int64_t turns_per_entry, const Spread& spread) const;
  const Cuts& cuts_for(const Attention& attention) const;

  at::Device device_;
  at::Tensor ranges_, words_;
  Entries by_query_, back_by_query_, by_key_;
  mutable std::mutex mutex_;              // Of `cuts_`; what stands there stays as it is.
  mutable std::map<Numbers, Cuts> cuts_;  // Few: one for each kind of layer.
};

}  // namespace troupe::kernels::gpu
