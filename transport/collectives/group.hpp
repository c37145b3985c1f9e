// Collective operations among a fixed list of ranks, on any transport, in host memory.
//
// Every result is the same to the bit at every rank and in every run: sums run over the ranks in
// rank order, whoever computes them and in whatever order the parts arrive.
//
// Two ranks may live in one process (two devices of a node): each has its own `Group`, the members
// name the node twice. What holds of all collectives stands in collectives.hpp. After an error
// receive buffers may be written until the missing peer has been disconnected; their owners keep
// them alive that long.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "transport/collectives/collectives.hpp"

namespace troupe::transport {

struct GroupOptions {
  std::vector<Peer> members;   ///< Node of each rank; a node may appear more than once.
  std::int32_t rank = -1;      ///< Own position in `members`.
  EpochNumber epoch = 0;       ///< Configuration the group belongs to.
  std::uint32_t group_id = 0;  ///< The same at all ranks; different for groups of one epoch.
};

class Group final : public Collectives {
 public:
  /// The transport must outlive the group and be connected to all members.
  /// Errors: invalid_argument: no members, more than 65,536 of them, an id of 2^24 or more, a rank
  /// out of range, or a `members[rank]` that is not this node.
  static Result<Group> create(Transport& transport, GroupOptions options);

 private:
  class Round;

  Status sum_everywhere(MutableBuffer data, Scalar scalar, Deadline deadline) override;
  Status sum_in_shards(ConstBuffer input, std::span<const std::size_t> counts, Scalar scalar,
                       MutableBuffer output, Deadline deadline) override;
  Status gather(ConstBuffer input, std::span<const std::size_t> bytes, MutableBuffer output,
                Deadline deadline) override;
  Status exchange(ConstBuffer input, std::span<const std::size_t> send_bytes, MutableBuffer output,
                  std::span<const std::size_t> receive_bytes, Deadline deadline) override;
  Status copy_from(MutableBuffer data, std::int32_t root_rank, Deadline deadline) override;
  Status meet(Deadline deadline) override;

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
      : Collectives(options.rank, static_cast<std::int32_t>(options.members.size())),
        transport_(&transport),
        options_(std::move(options)) {}

  Transport* transport_;
  GroupOptions options_;
  std::uint64_t calls_ = 0;      ///< Numbers the collectives; goes into every tag.
  std::optional<Error> broken_;  ///< Why every later call fails.
};

}  // namespace troupe::transport
