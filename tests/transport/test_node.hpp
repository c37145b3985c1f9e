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
#include "transport/registry.hpp"

namespace troupe::transport::testing {

/// How an operation ended. `digest` is that of the received bytes.
struct Outcome {
  bool ok = false;
  Errc code = Errc::internal;
  std::string message;
  std::uint64_t digest = 0;
};

class TestNode {
 public:
  virtual ~TestNode() = default;

  virtual std::vector<std::byte> address() = 0;
  virtual Outcome connect(Peer peer, const std::vector<std::byte>& address) = 0;
  virtual int send(Peer peer, Tag tag, std::size_t bytes, std::uint64_t seed) = 0;
  virtual int receive(Peer peer, Tag tag, std::size_t bytes) = 0;
  virtual void cancel(int operation) = 0;
  virtual Outcome wait(int operation, int milliseconds) = 0;
  virtual void disconnect(Peer peer) = 0;
  virtual void drop_older_than(EpochNumber epoch) = 0;
  /// Peers whose failure was reported so far, in that order.
  virtual std::vector<Peer> failures() = 0;
  /// Destroys the transport, or kills the process without warning.
  virtual void vanish() = 0;
};

/// The bytes that `seed` stands for, and their digest.
std::vector<std::byte> pattern(std::uint64_t seed, std::size_t bytes);
std::uint64_t digest_of(const std::byte* data, std::size_t bytes);
std::uint64_t digest_of_pattern(std::uint64_t seed, std::size_t bytes);

/// A node of this process.
std::unique_ptr<TestNode> make_local_node(std::unique_ptr<Transport> transport);

}  // namespace troupe::transport::testing
