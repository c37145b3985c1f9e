// Collective operations among a fixed list of ranks: what every way to do them promises.
//
// `Group` does them over any transport, in host memory; `NcclGroup` (transport/nccl) over NCCL, in
// the memory of GPUs. Calls block until the result is there, or until their deadline. All ranks
// make the same calls in the same order with the same sizes, types and root. An object belongs to
// one thread.
//
// After an error of a call the group is broken: every later call fails with the same error, and the
// peers notice by their deadline or by the failed connection.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/transport.hpp"

namespace troupe::transport {

/// Element types that can be summed. bf16 is summed in fp32 and rounded once, to nearest even.
enum class Scalar : std::uint8_t { fp32, fp64, bf16, int64 };

/// Bytes of one element.
std::size_t size_of(Scalar scalar);

class Collectives {
 public:
  virtual ~Collectives() = default;

  std::int32_t rank() const { return rank_; }  ///< Own place among the members.
  std::int32_t size() const { return size_; }  ///< How many members there are.

  // Errors of all calls below:
  // - invalid_argument: sizes that do not fit together, data that are no whole or not aligned
  //   elements, a root out of range (these leave the group whole), or a peer that sent another
  //   size.
  // - timed_out: the deadline passed; the text says who or what is missing.
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

 protected:
  /// REQUIRES: 0 <= rank < size.
  Collectives(std::int32_t rank, std::int32_t size) : rank_(rank), size_(size) {}
  Collectives(Collectives&&) = default;
  Collectives& operator=(Collectives&&) = default;

 private:
  // The calls above once their arguments are known to fit.
  virtual Status sum_everywhere(MutableBuffer data, Scalar scalar, Deadline deadline) = 0;
  virtual Status sum_in_shards(ConstBuffer input, std::span<const std::size_t> counts,
                               Scalar scalar, MutableBuffer output, Deadline deadline) = 0;
  virtual Status gather(ConstBuffer input, std::span<const std::size_t> bytes, MutableBuffer output,
                        Deadline deadline) = 0;
  virtual Status exchange(ConstBuffer input, std::span<const std::size_t> send_bytes,
                          MutableBuffer output, std::span<const std::size_t> receive_bytes,
                          Deadline deadline) = 0;
  virtual Status copy_from(MutableBuffer data, std::int32_t root_rank, Deadline deadline) = 0;
  virtual Status meet(Deadline deadline) = 0;

  std::int32_t rank_;
  std::int32_t size_;
};

}  // namespace troupe::transport
