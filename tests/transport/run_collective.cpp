#include <cstring>
#include <memory>

#include "tests/transport/test_node.hpp"

namespace troupe::transport::testing {
namespace {

using Memory = std::shared_ptr<std::vector<std::byte>>;

Memory own(std::vector<std::byte> bytes) {
  return std::make_shared<std::vector<std::byte>>(std::move(bytes));
}
MutableBuffer whole(const Memory& memory) { return {memory->data(), memory->size(), memory}; }
ConstBuffer const_whole(const Memory& memory) { return {memory->data(), memory->size(), memory}; }

std::size_t sum(const std::vector<std::size_t>& sizes) {
  std::size_t total = 0;
  for (const auto size : sizes) total += size;
  return total;
}

/// Runs one collective; what it has received is left in `output`.
Status run(Collectives& group, const CollectiveCall& call, Memory& output) {
  const auto deadline = within(std::chrono::milliseconds(call.deadline_ms));
  const auto input = own(rank_values(call.seed, call.rank, call.count, call.scalar));
  std::vector<std::size_t> sent, received, shared;
  for (std::int32_t rank = 0; rank < group.size(); ++rank) {
    sent.push_back(piece_bytes(call.seed, call.rank, rank, call.count));
    received.push_back(piece_bytes(call.seed, rank, call.rank, call.count));
    shared.push_back(piece_bytes(call.seed, rank, 0, call.count));
  }
  if (call.kind == "all_reduce") {
    output = input;
    return group.all_reduce(whole(output), call.scalar, deadline);
  }
  if (call.kind == "reduce_scatter") {
    // The ranks' shards take one another's odd sizes; the last takes the rest.
    std::vector<std::size_t> counts = shared;
    for (auto& count : counts) count /= counts.size();
    counts.back() += call.count - sum(counts);
    output = own(
        std::vector<std::byte>(counts[static_cast<std::size_t>(call.rank)] * size_of(call.scalar)));
    return group.reduce_scatter(const_whole(input), counts, call.scalar, whole(output), deadline);
  }
  if (call.kind == "all_gather") {
    const auto piece = own(pattern(call.seed + static_cast<std::uint64_t>(call.rank),
                                   shared[static_cast<std::size_t>(call.rank)]));
    output = own(std::vector<std::byte>(sum(shared)));
    return group.all_gather(const_whole(piece), shared, whole(output), deadline);
  }
  if (call.kind == "all_to_all") {
    std::vector<std::byte> pieces;
    for (std::int32_t to = 0; to < group.size(); ++to) {
      const auto seed = call.seed + static_cast<std::uint64_t>(100 * call.rank + to);
      const auto piece = pattern(seed, sent[static_cast<std::size_t>(to)]);
      pieces.insert(pieces.end(), piece.begin(), piece.end());
    }
    const auto all = own(std::move(pieces));
    output = own(std::vector<std::byte>(sum(received)));
    return group.all_to_all(const_whole(all), sent, whole(output), received, deadline);
  }
  if (call.kind == "broadcast") {
    const auto root = static_cast<std::int32_t>(call.seed % call.members.size());
    const bool is_root = root == call.rank;
    output =
        is_root ? own(pattern(call.seed, call.count)) : own(std::vector<std::byte>(call.count));
    return group.broadcast(whole(output), root, deadline);
  }
  output = own({});
  return group.barrier(deadline);
}

}  // namespace

std::vector<std::byte> rank_values(std::uint64_t seed, std::int32_t rank, std::size_t count,
                                   Scalar scalar) {
  const auto words = pattern(seed * 1000 + static_cast<std::uint64_t>(rank), count * 8);
  std::vector<std::byte> values(count * size_of(scalar));
  for (std::size_t i = 0; i < count; ++i) {
    std::int64_t word = 0;
    std::memcpy(&word, words.data() + 8 * i, 8);
    // Magnitudes from 2^-8 to 2^7, so that rounding differs from one order to another.
    const auto real =
        static_cast<double>(word >> 32) / (1u << 31) * static_cast<double>(1 << (word & 15)) / 256;
    const auto single = static_cast<float>(real);
    auto* place = values.data() + i * size_of(scalar);
    switch (scalar) {
      case Scalar::fp32: std::memcpy(place, &single, 4); break;
      case Scalar::fp64: std::memcpy(place, &real, 8); break;
      case Scalar::bf16:  // Its upper half: truncated, still a valid value.
        std::memcpy(place, reinterpret_cast<const std::byte*>(&single) + 2, 2);
        break;
      case Scalar::int64: std::memcpy(place, &word, 8); break;
    }
  }
  return values;
}

std::size_t piece_bytes(std::uint64_t seed, std::int32_t from, std::int32_t to, std::size_t bytes) {
  const auto choice = seed + static_cast<std::uint64_t>(7 * from + 3 * to);
  return choice % 4 == 0 ? 0 : bytes * (choice % 5) / 4;
}

Outcome run_collective(Collectives& group, const CollectiveCall& call) {
  Memory output;
  const auto status = run(group, call, output);
  if (!status.ok()) return {false, status.error().code, status.error().message, 0};
  return {true, Errc::internal, "", digest_of(output->data(), output->size())};
}

}  // namespace troupe::transport::testing
