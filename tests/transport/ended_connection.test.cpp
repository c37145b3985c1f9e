// What both sides see when a connection ends, on every backend: nodes that leave, vanish and
// return.

#include <catch2/catch_test_macros.hpp>
#include <future>

#include "tests/transport/checks.hpp"

namespace troupe::transport::testing {
namespace {

TEST_CASE("disconnecting ends everything that is pending, on both sides", "[transport][errors]") {
  BACKEND();
  Nodes nodes(backend, 3);
  nodes.connect_all();
  const int receive = nodes[0].receive(1, tag(1), 1 << 20);
  const int send = nodes[0].send(1, tag(2), 1 << 20, 1);
  const int other_side = nodes[1].receive(0, tag(3), 100);
  const int bystander = nodes[0].receive(2, tag(1), 100);
  nodes[0].disconnect(1);
  check_ended(nodes[0], receive, Errc::cancelled);
  check_ended(nodes[0], send, Errc::cancelled);
  check_ended(nodes[1], other_side, Errc::transport_failed);
  check_ended(nodes[0], nodes[0].send(1, tag(4), 8, 1), Errc::not_found);
  CHECK(nodes[0].failures().empty());
  CHECK(failures_soon(nodes[1], 1) == std::vector<Peer>{0});
  nodes[2].send(0, tag(1), 100, 5);
  check_received(nodes[0], bystander, 5, 100);
}

TEST_CASE("a send that nobody receives never succeeds, however late the peer hears of it",
          "[transport][errors]") {
  BACKEND();
  constexpr int kRounds = 20, kSends = 30;
  Nodes nodes(backend, 2);
  for (int round = 0; round < kRounds; ++round) {
    nodes.connect(0, 1);
    const int ready = nodes[1].receive(0, tag(kSends), 8);
    nodes[0].send(1, tag(kSends), 8, 1);
    check_received(nodes[1], ready, 1, 8);
    auto leaving = std::async(std::launch::async, [&] { nodes[1].disconnect(0); });
    std::vector<int> sends;
    for (std::uint64_t index = 0; index < kSends; ++index) {
      sends.push_back(nodes[0].send(1, tag(index), 1 << 20, index));
    }
    leaving.get();
    for (const int send : sends) {
      const auto outcome = nodes[0].wait(send, kVanished);
      INFO("round " << round << ": " << outcome.message);
      CHECK_FALSE(outcome.ok);
    }
    nodes[0].disconnect(1);
  }
}

TEST_CASE("a connection can be opened again, and old messages stay behind", "[transport]") {
  BACKEND();
  Nodes nodes(backend, 2);
  nodes.connect_all();
  for (int round = 0; round < 3; ++round) {
    const std::size_t bytes = round == 1 ? 1 << 20 : 24;
    nodes[0].send(1, tag(1), bytes, 111);  // Never received.
    const int pending = nodes[1].receive(0, tag(2), 8);
    nodes[0].disconnect(1);
    check_ended(nodes[1], pending, Errc::transport_failed);
    nodes[1].disconnect(0);
    nodes.connect(0, 1);
    const int receive = nodes[1].receive(0, tag(1), bytes);
    const int send = nodes[0].send(1, tag(1), bytes, 222);
    check_received(nodes[1], receive, 222, bytes);
    CHECK(nodes[0].wait(send, kSoon).ok);
  }
}

TEST_CASE("a vanished peer ends every pending operation", "[transport][errors]") {
  BACKEND();
  Nodes nodes(backend, 3);
  nodes.connect_all();
  const int ready = nodes[0].receive(1, tag(9), 8);
  nodes[1].send(0, tag(9), 8, 1);
  check_received(nodes[0], ready, 1, 8);
  const int receive = nodes[0].receive(1, tag(1), 1 << 20);
  const int send = nodes[0].send(1, tag(2), 1 << 20, 1);
  nodes[1].vanish();
  check_ended(nodes[0], receive, Errc::transport_failed);
  check_ended(nodes[0], send, Errc::transport_failed);
  CHECK(failures_soon(nodes[0], 1) == std::vector<Peer>{1});
  const int alive = nodes[0].receive(2, tag(3), 50);
  nodes[2].send(0, tag(3), 50, 2);
  check_received(nodes[0], alive, 2, 50);
}

TEST_CASE("what a peer sent before it left in order still arrives", "[transport]") {
  BACKEND();
  if (backend.processes) return;  // Killed processes do not leave in order.
  Nodes nodes(backend, 2);
  nodes.connect_all();
  nodes[1].send(0, tag(1), 8, 1);
  check_received(nodes[0], nodes[0].receive(1, tag(1), 8), 1, 8);
  const int receive = nodes[0].receive(1, tag(2), 100);
  nodes[1].send(0, tag(2), 100, 2);
  nodes[1].vanish();
  check_received(nodes[0], receive, 2, 100);
}

TEST_CASE("a restarted peer is a new connection under the old id", "[transport]") {
  BACKEND();
  Nodes nodes(backend, 2);
  nodes.connect_all();
  for (int round = 0; round < 2; ++round) {
    const int pending = nodes[0].receive(1, tag(1), 1 << 20);
    nodes[1].vanish();
    check_ended(nodes[0], pending, Errc::transport_failed);
    nodes.restart(1);
    nodes.connect(0, 1);
    for (const std::size_t bytes : {8u, 1u << 20}) {
      const int receive = nodes[0].receive(1, tag(1), bytes);
      const int other = nodes[1].receive(0, tag(1), bytes);
      nodes[1].send(0, tag(1), bytes, 5);
      nodes[0].send(1, tag(1), bytes, 6);
      check_received(nodes[0], receive, 5, bytes);
      check_received(nodes[1], other, 6, bytes);
    }
  }
}

}  // namespace
}  // namespace troupe::transport::testing
