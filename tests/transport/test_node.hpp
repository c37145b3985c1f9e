// A node under test: the same test drives transports of this process and of helper processes.
//
// Calls return at once; `wait` gives the outcome of a numbered operation. Contents are made from a
// seed and come back as a digest, so that no test data crosses the control pipe.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/vocabulary/result.hpp"
#include "transport/collectives/group.hpp"
#include "transport/registry.hpp"

namespace troupe::transport::testing {

/// How an operation ended. `digest` is that of the received bytes.
struct Outcome {
  bool ok = false;
  Errc code = Errc::internal;
  std::string message;
  std::uint64_t digest = 0;
};

/// One collective call of one rank; `run_collective` says what each kind takes and gives.
struct CollectiveCall {
  std::string kind;
  std::vector<Peer> members;
  std::int32_t rank = 0;
  std::uint32_t group_id = 1;
  Scalar scalar = Scalar::fp32;
  std::size_t count = 0;
  std::uint64_t seed = 0;
  int deadline_ms = 10000;
  bool delayed = false;  ///< Sends leave after random delays, out of order.
};

class TestNode {
 public:
  virtual ~TestNode() = default;

  virtual std::vector<std::byte> address() = 0;
  virtual Outcome connect(Peer peer, const std::vector<std::byte>& address) = 0;
  virtual int send(Peer peer, Tag tag, std::size_t bytes, std::uint64_t seed) = 0;
  virtual int receive(Peer peer, Tag tag, std::size_t bytes) = 0;
  /// Starts the call on a thread of its own; the digest is that of its output.
  virtual int collective(const CollectiveCall& call) = 0;
  virtual void cancel(int operation) = 0;
  virtual Outcome wait(int operation, int milliseconds) = 0;
  virtual void disconnect(Peer peer) = 0;
  virtual void drop_older_than(EpochNumber epoch) = 0;
  /// Peers whose failure was reported so far, in that order.
  virtual std::vector<Peer> failures() = 0;
  /// Destroys the transport, or kills the process without warning.
  virtual void vanish() = 0;
  /// Stops the process without ending it (SIGSTOP). Only nodes that are processes.
  virtual void freeze() {}
  /// Kills the process and does not reap it. Only nodes that are processes.
  virtual void become_zombie() {}
};

/// The bytes that `seed` stands for, and their digest.
std::vector<std::byte> pattern(std::uint64_t seed, std::size_t bytes);
std::uint64_t digest_of(const std::byte* data, std::size_t bytes);
std::uint64_t digest_of_pattern(std::uint64_t seed, std::size_t bytes);

/// Runs the call and returns its outcome with the digest of the output. Inputs come from
/// `rank_values(seed, rank)` and `piece_bytes`.
Outcome run_collective(Collectives& group, const CollectiveCall& call);

/// Elements whose sum depends on the order of summation (not for int64).
std::vector<std::byte> rank_values(std::uint64_t seed, std::int32_t rank, std::size_t count,
                                   Scalar scalar);
/// Sizes of the unequal pieces, some of them 0; at most `bytes`.
std::size_t piece_bytes(std::uint64_t seed, std::int32_t from, std::int32_t to, std::size_t bytes);

/// A node of this process.
std::unique_ptr<TestNode> make_local_node(std::unique_ptr<Transport> transport);

/// A node in a process of its own, made by fork and exec of the helper program that stands beside
/// the test program. `network_namespace`: run it there (`ip netns exec`), as if on
/// another host.
std::unique_ptr<TestNode> make_process_node(const std::string& backend,
                                            const TransportOptions& options,
                                            const std::string& network_namespace = "");

}  // namespace troupe::transport::testing
