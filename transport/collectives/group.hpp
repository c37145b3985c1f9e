// Collective operations among a fixed list of ranks, on any transport.
//
// Every result is the same to the bit at every rank and in every run: sums run over the ranks in
// rank order, whoever computes them and in whatever order the parts arrive.
//
// A `Group` belongs to one thread; calls block until the result is there. Two ranks may live in
// one process (two devices of a node): each has its own `Group`, the members name the node twice.
// All ranks make the same calls in the same order with the same sizes, types and root.
//
// After an error the group is broken: every later call fails with the same error, and the peers
// notice by their deadline or by the failed connection. Receive buffers may be written until the
// missing peer has been disconnected; their owners keep them alive that long.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/transport.hpp"

namespace troupe::transport {

/// Element types that can be summed. bf16 is summed in fp32 and rounded once, to nearest even.
enum class Scalar : std::uint8_t { fp32, fp64, bf16, int64 };

/// Bytes of one element.
std::size_t size_of(Scalar scalar);

struct GroupOptions {
  std::vector<Peer> members;   ///< Node of each rank; a node may appear more than once.
  std::int32_t rank = -1;      ///< Own position in `members`.
  EpochNumber epoch = 0;       ///< Configuration the group belongs to.
  std::uint32_t group_id = 0;  ///< The same at all ranks; different for groups of one epoch.
};

class Group {
 public:
  /// The transport must outlive the group and be connected to all members.
  /// Errors: invalid_argument: no members, more than 65,536 of them, an id of 2^24 or more, a rank
  /// out of range, or a `members[rank]` that is not this node.
  static Result<Group> create(Transport& transport, GroupOptions options);

  std::int32_t rank() const { return options_.rank; }
  std::int32_t size() const { return static_cast<std::int32_t>(options_.members.size()); }

  // Errors of all calls below:
  // - invalid_argument: sizes that do not fit together, data that are no whole or not aligned
  //   elements, a root out of range (these leave the group whole), or a peer that sent another
  //   size.
  // - timed_out: the deadline passed; names the ranks that are missing.
  // - transport_failed, cancelled: as `Transport::send`.

  /// Replaces `data` by the sum over ranks. Moves 2 (n-1)/n of the bytes per rank, each way.
  Status all_reduce(MutableBuffer data, Scalar scalar, Deadline deadline);

  /// Sums `input` over ranks; rank r receives elements [sum counts[..r), + counts[r]) of the sum in
  /// `output`. REQUIRES: `input` and `output` do not overlap.
  Status reduce_scatter(ConstBuffer input, std::span<const std::size_t> counts, Scalar scalar,
                        MutableBuffer output, Deadline deadline);

  /// Concatenates the ranks' inputs, of `bytes[r]` bytes each, in rank order.
  /// `input` may be its own place in `output`.
  Status all_gather(ConstBuffer input, std::span<const std::size_t> bytes, MutableBuffer output,
                    Deadline deadline);

  /// Rank r receives the r-th piece of every rank's input, concatenated in rank order. Pieces are
  /// laid end to end: `send_bytes[r]` to rank r, `receive_bytes[r]` from rank r; empty pieces
  /// cost no message.
  Status all_to_all(ConstBuffer input, std::span<const std::size_t> send_bytes,
                    MutableBuffer output, std::span<const std::size_t> receive_bytes,
                    Deadline deadline);

  /// Copies rank `root_rank`'s data to all ranks.
  Status broadcast(MutableBuffer data, std::int32_t root_rank, Deadline deadline);

  /// Returns when every rank has called it.
  Status barrier(Deadline deadline);

 private:
  class Round;

  /// First step of every call. Errors: what broke the group.
  Status begin();
  /// Everyone sends each rank its shard of `input` and sums its own into `output`; `starts` are
  /// byte offsets.
  Status exchange_shards(const ConstBuffer& input, std::span<const std::size_t> starts,
                         Scalar scalar, std::byte* output, Deadline deadline);
  /// Everyone sends `piece` to all and puts the others' into `output` at `starts`.
  Status gather_pieces(const ConstBuffer& piece, std::span<const std::size_t> starts,
                       const MutableBuffer& output, Deadline deadline);

  Group(Transport& transport, GroupOptions options)
      : transport_(&transport), options_(std::move(options)) {}

  Transport* transport_;
  GroupOptions options_;
  std::uint64_t calls_ = 0;      ///< Numbers the collectives; goes into every tag.
  std::optional<Error> broken_;  ///< Why every later call fails.
};

}  // namespace troupe::transport
