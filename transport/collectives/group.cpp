#include "transport/collectives/group.hpp"

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "transport/collectives/group_round.hpp"
#include "transport/collectives/pieces.hpp"
#include "transport/collectives/rank_order_sum.hpp"

namespace troupe::transport {
namespace {

constexpr std::size_t kMembersMax = 1 << 16;
constexpr std::uint32_t kGroupIdsMax = 1 << 24;

void copy(const std::byte* from, std::byte* to, std::size_t bytes) {
  if (bytes > 0 && from != to) std::memmove(to, from, bytes);
}

}  // namespace

Result<Group> Group::create(Transport& transport, GroupOptions options) {
  const auto count = options.members.size();
  const auto refuse = [](const std::string& what) {
    return Error{Errc::invalid_argument, "a group's " + what, "", ""};
  };
  if (count == 0 || count > kMembersMax) {
    return refuse("member count is " + std::to_string(count) + ", not 1 to 65536");
  }
  if (options.group_id >= kGroupIdsMax) {
    return refuse("id is " + std::to_string(options.group_id) + ", not below 2^24");
  }
  if (options.rank < 0 || static_cast<std::size_t>(options.rank) >= count) {
    return refuse("own rank is " + std::to_string(options.rank) + ", not below its " +
                  std::to_string(count) + " members");
  }
  const auto node = options.members[static_cast<std::size_t>(options.rank)];
  if (node != transport.self()) {
    return refuse("rank " + std::to_string(options.rank) + " is node " + std::to_string(node) +
                  ", but this is node " + std::to_string(transport.self()));
  }
  return Group(transport, std::move(options));
}

Status Group::begin() {
  if (broken_) return *broken_;
  ++calls_;
  return Done{};
}

Status Group::exchange_shards(const ConstBuffer& input, std::span<const std::size_t> starts,
                              Scalar scalar, std::byte* output, Deadline deadline) {
  const auto own = static_cast<std::size_t>(rank());
  const auto own_bytes = starts[own + 1] - starts[own];
  // Owned jointly: after a failure the transport may still write to it.
  const auto scratch =
      std::make_shared<std::vector<std::byte>>(own_bytes * (options_.members.size() - 1));
  std::vector<const void*> inputs;
  Round round(*this, 0, deadline);
  auto* place = scratch->data();
  for (std::int32_t other = 0; other < size(); ++other) {
    if (other == rank()) {
      inputs.push_back(at(input, starts[own]));
      continue;
    }
    const auto begin = starts[static_cast<std::size_t>(other)];
    const auto bytes = starts[static_cast<std::size_t>(other) + 1] - begin;
    if (own_bytes > 0) round.receive(other, {place, own_bytes, scratch});
    if (bytes > 0) round.send(other, slice(input, begin, bytes));
    inputs.push_back(place);
    place += own_bytes;
  }
  if (auto status = round.wait(); !status) return status;
  sum_in_rank_order(inputs, own_bytes / size_of(scalar), scalar, output);
  return Done{};
}

Status Group::gather_pieces(const ConstBuffer& piece, std::span<const std::size_t> starts,
                            const MutableBuffer& output, Deadline deadline) {
  Round round(*this, 1, deadline);
  for (std::int32_t other = 0; other < size(); ++other) {
    const auto begin = starts[static_cast<std::size_t>(other)];
    const auto bytes = starts[static_cast<std::size_t>(other) + 1] - begin;
    if (other == rank()) {
      copy(at(piece, 0), at(output, begin), bytes);
      continue;
    }
    if (bytes > 0) round.receive(other, slice(output, begin, bytes));
    if (piece.bytes > 0) round.send(other, piece);
  }
  return round.wait();
}

Status Group::sum_everywhere(MutableBuffer data, Scalar scalar, Deadline deadline) {
  if (auto status = begin(); !status) return status;
  const auto counts = shard_counts(data.bytes / size_of(scalar), options_.members.size());
  const auto starts = starts_of(times(counts, size_of(scalar)));
  const auto own = static_cast<std::size_t>(rank());
  auto status = exchange_shards(as_const(data), starts, scalar, at(data, starts[own]), deadline);
  if (!status) return status;
  const auto shard = slice(as_const(data), starts[own], starts[own + 1] - starts[own]);
  return gather_pieces(shard, starts, data, deadline);
}

Status Group::sum_in_shards(ConstBuffer input, std::span<const std::size_t> counts, Scalar scalar,
                            MutableBuffer output, Deadline deadline) {
  const auto starts = starts_of(times(counts, size_of(scalar)));
  if (auto status = begin(); !status) return status;
  auto* target = static_cast<std::byte*>(output.data);
  return exchange_shards(input, starts, scalar, target, deadline);
}

Status Group::gather(ConstBuffer input, std::span<const std::size_t> bytes, MutableBuffer output,
                     Deadline deadline) {
  const auto starts = starts_of(bytes);
  if (auto status = begin(); !status) return status;
  return gather_pieces(input, starts, output, deadline);
}

Status Group::exchange(ConstBuffer input, std::span<const std::size_t> send_bytes,
                       MutableBuffer output, std::span<const std::size_t> receive_bytes,
                       Deadline deadline) {
  const auto ranks = send_bytes.size(), own = static_cast<std::size_t>(rank());
  const auto sent = starts_of(send_bytes), received = starts_of(receive_bytes);
  if (auto status = begin(); !status) return status;
  Round round(*this, 0, deadline);
  for (std::size_t other = 0; other < ranks; ++other) {
    if (other == own) continue;
    const auto other_rank = static_cast<std::int32_t>(other);
    if (receive_bytes[other] > 0) {
      round.receive(other_rank, slice(output, received[other], receive_bytes[other]));
    }
    if (send_bytes[other] > 0) {
      round.send(other_rank, slice(input, sent[other], send_bytes[other]));
    }
  }
  copy(at(input, sent[own]), at(output, received[own]), send_bytes[own]);
  return round.wait();
}

Status Group::copy_from(MutableBuffer data, std::int32_t root_rank, Deadline deadline) {
  if (auto status = begin(); !status) return status;
  Round round(*this, 0, deadline);
  if (rank() != root_rank) {
    round.receive(root_rank, data);
  } else {
    for (std::int32_t other = 0; other < size(); ++other) {
      if (other != rank()) round.send(other, as_const(data));
    }
  }
  return round.wait();
}

Status Group::meet(Deadline deadline) {
  if (auto status = begin(); !status) return status;
  // Everyone tells everyone, so that everyone notices a dead member by itself.
  Round round(*this, 0, deadline);
  for (std::int32_t other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    round.receive(other, {});
    round.send(other, {});
  }
  return round.wait();
}

}  // namespace troupe::transport
