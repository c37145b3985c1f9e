// What the suites of the transport share: a case per backend, and how operations have to end.

#pragma once

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "tests/transport/backends.hpp"

namespace troupe::transport::testing {

constexpr int kSoon = 10000;     // Generous: a loaded machine must not fail the suite.
constexpr int kVanished = 2000;  // What the interface promises for a vanished peer.

inline Tag tag(std::uint64_t index, EpochNumber epoch = 1) {
  return make_tag(epoch, TagKind::user, 0, index);
}

/// Runs the test case once for each row of `all_backends`.
inline const Backend& each_backend() {
  const auto row = GENERATE(range(std::size_t{0}, all_backends().size()));
  return all_backends()[row];
}

#define BACKEND()                          \
  const Backend& backend = each_backend(); \
  CAPTURE(to_string(backend))

inline void check_received(TestNode& node, int receive, std::uint64_t seed, std::size_t bytes) {
  const auto outcome = node.wait(receive, kSoon);
  INFO(outcome.message);
  REQUIRE(outcome.ok);
  CHECK(outcome.digest == digest_of_pattern(seed, bytes));
}

inline void check_ended(TestNode& node, int operation, Errc code, int milliseconds = kVanished) {
  const auto outcome = node.wait(operation, milliseconds);
  INFO(outcome.message);
  REQUIRE_FALSE(outcome.ok);
  CHECK(to_string(outcome.code) == to_string(code));
}

/// The handler hears of a failure after the operations have ended, in another thread.
inline std::vector<Peer> failures_soon(TestNode& node, std::size_t count) {
  const auto deadline = within(std::chrono::milliseconds(kVanished));
  while (node.failures().size() < count && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return node.failures();
}

}  // namespace troupe::transport::testing
