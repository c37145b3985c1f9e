#include "transport/collectives/collectives.hpp"

#include <string>
#include <utility>

#include "transport/collectives/pieces.hpp"

namespace troupe::transport {
namespace {

Error wrong(std::string message) {
  return {Errc::invalid_argument, "a collective's " + std::move(message), "",
          "derive the sizes from the same plan at all ranks"};
}

bool is_aligned(const void* data, Scalar scalar) {
  return reinterpret_cast<std::uintptr_t>(data) % size_of(scalar) == 0;
}

}  // namespace

std::size_t size_of(Scalar scalar) {
  switch (scalar) {
    case Scalar::fp32: return 4;
    case Scalar::fp64: return 8;
    case Scalar::bf16: return 2;
    case Scalar::int64: return 8;
  }
  return 1;
}

Status Collectives::all_reduce(MutableBuffer data, Scalar scalar, Deadline deadline) {
  if (data.bytes % size_of(scalar) != 0 || !is_aligned(data.data, scalar)) {
    return wrong("data are no whole, aligned elements");
  }
  return sum_everywhere(std::move(data), scalar, deadline);
}

Status Collectives::reduce_scatter(ConstBuffer input, std::span<const std::size_t> counts,
                                   Scalar scalar, MutableBuffer output, Deadline deadline) {
  if (counts.size() != static_cast<std::size_t>(size_)) return wrong("counts are not one per rank");
  if (input.bytes != starts_of(times(counts, size_of(scalar))).back()) {
    return wrong("input is not as long as its shards");
  }
  if (output.bytes != counts[static_cast<std::size_t>(rank_)] * size_of(scalar)) {
    return wrong("output is not as long as the own shard");
  }
  if (!is_aligned(input.data, scalar) || !is_aligned(output.data, scalar)) {
    return wrong("data are not aligned");
  }
  return sum_in_shards(std::move(input), counts, scalar, std::move(output), deadline);
}

Status Collectives::all_gather(ConstBuffer input, std::span<const std::size_t> bytes,
                               MutableBuffer output, Deadline deadline) {
  if (bytes.size() != static_cast<std::size_t>(size_)) return wrong("sizes are not one per rank");
  if (output.bytes != starts_of(bytes).back()) return wrong("output is not as long as all inputs");
  if (input.bytes != bytes[static_cast<std::size_t>(rank_)]) {
    return wrong("input is not as long as its entry in the sizes");
  }
  return gather(std::move(input), bytes, std::move(output), deadline);
}

Status Collectives::all_to_all(ConstBuffer input, std::span<const std::size_t> send_bytes,
                               MutableBuffer output, std::span<const std::size_t> receive_bytes,
                               Deadline deadline) {
  const auto ranks = static_cast<std::size_t>(size_);
  if (send_bytes.size() != ranks || receive_bytes.size() != ranks) {
    return wrong("sizes are not one per rank");
  }
  if (input.bytes != starts_of(send_bytes).back()) {
    return wrong("input is not as long as its pieces");
  }
  if (output.bytes != starts_of(receive_bytes).back()) {
    return wrong("output is not as long as its pieces");
  }
  const auto own = static_cast<std::size_t>(rank_);
  if (send_bytes[own] != receive_bytes[own]) return wrong("piece for itself has two sizes");
  return exchange(std::move(input), send_bytes, std::move(output), receive_bytes, deadline);
}

Status Collectives::broadcast(MutableBuffer data, std::int32_t root_rank, Deadline deadline) {
  if (root_rank < 0 || root_rank >= size_) return wrong("root is not one of its ranks");
  return copy_from(std::move(data), root_rank, deadline);
}

Status Collectives::barrier(Deadline deadline) { return meet(deadline); }

}  // namespace troupe::transport
