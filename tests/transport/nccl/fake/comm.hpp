// A communicator of the fake NCCL: ranks that meet in a file in memory, and bytes that go through
// rings there.

#pragma once

#include <atomic>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "transport/nccl/nccl_abi.hpp"

namespace fake_nccl {

using Code = troupe::transport::nccl::Code;
using Comm = troupe::transport::nccl::Comm;

inline constexpr int kRanksMax = 8, kSplitsMax = 16, kWays = 2;
inline constexpr std::size_t kRingBytes = 1 << 16;

/// Bytes from one rank to another. All zero is empty, so a new file needs no beginning.
struct Ring {
  std::atomic<std::uint64_t> written, read;
  std::byte bytes[kRingBytes];
};

/// The file in memory that the ranks of a communicator share.
struct Segment {
  std::atomic<std::uint32_t> joined[kRanksMax];
  std::atomic<std::uint64_t> splits[kSplitsMax][kRanksMax];  ///< Color and key; 0: not there yet.
  /// [way][by][for]: launched something.
  std::atomic<std::uint32_t> called[kWays][kRanksMax][kRanksMax];
  Ring rings[kRanksMax][kRanksMax];  ///< [from][to].
};

/// What work with another rank goes by: sends and receives have connections of their own, and
/// collectives others.
struct Link {
  int way = 0;  ///< 0: sends and receives; 1: collectives.
  int peer = 0;

  friend auto operator<=>(const Link&, const Link&) = default;
};

/// A piece on its way between this rank and another.
struct Part {
  bool is_send = false;
  int peer = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::size_t done = 0;
};

/// A communicator that is being derived from this one.
struct Pending {
  std::function<Comm()> make;  ///< Null until all ranks have come.
  Comm* made = nullptr;
};

/// Work that NCCL has not begun yet.
struct Held {
  std::chrono::steady_clock::time_point until;
  std::function<bool()> are_peers_there;
  std::function<void()> begin;
};

}  // namespace fake_nccl

namespace troupe::transport::nccl {

struct CommState {
  std::string name;  ///< Of the file.
  int rank = 0, ranks = 0;
  fake_nccl::Segment* segment = nullptr;
  std::atomic<bool> is_stopping{false};  ///< Aborted or revoked: its work ends.
  std::atomic<bool> is_aborted{false};
  std::atomic<int> error{0};
  std::atomic<int> running{0};     ///< Pieces of work in streams.
  std::atomic<int> calm_calls{0};  ///< That go on.
  std::atomic<bool> is_revoked{false};
  std::atomic<bool> is_ready{false};
  bool is_never_ready = false;
  int splits = 0, shrinks = 0;
  std::mutex mutex;  ///< Of the two below.
  std::optional<fake_nccl::Pending> pending;
  std::vector<fake_nccl::Held> held;
};

}  // namespace troupe::transport::nccl

namespace fake_nccl {

/// Makes one that meets the others in the file `name`; joins unless `is_absent`.
Comm make_comm(const std::string& name, int rank, int ranks, bool is_absent);

/// Whether all ranks have joined.
bool have_all_joined(Comm comm);

/// Says to the ranks at these links that work was launched there; returns whether it is the first
/// at one of them.
bool call(Comm comm, const std::vector<Link>& links);

/// Whether they have said so to this one.
bool have_called(Comm comm, const std::vector<Link>& links);

/// Moves all parts, those between two ranks in their order; false when the communicator stops
/// first.
bool transfer(Comm comm, std::vector<Part> parts);

/// Takes its file away; what still runs keeps the memory.
void leave(Comm comm);

}  // namespace fake_nccl
