// What the survivors see when a node's process is killed, stopped or restarted.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <thread>

#include "tests/transport/checks.hpp"

namespace troupe::transport::testing {
namespace {

using Catch::Matchers::ContainsSubstring;

Backend each_process_backend() {
  return {"ucx", GENERATE("posix,sysv,self,tcp", "self,tcp"), true};
}

void check_lost(TestNode& node, int operation) {
  const auto outcome = node.wait(operation, kVanished);
  CHECK(to_string(outcome.code) == to_string(Errc::transport_failed));
  CHECK_THAT(outcome.message, ContainsSubstring("peer 1"));
}

void check_works(Nodes& nodes, int a, int b) {
  for (const std::size_t bytes : {8u, 1u << 20}) {
    const int receive = nodes[b].receive(a, tag(1000), bytes);
    nodes[a].send(b, tag(1000), bytes, 77);
    check_received(nodes[b], receive, 77, bytes);
  }
}

TEST_CASE("a process killed while a receive is posted", "[transport][errors]") {
  Nodes nodes(each_process_backend(), 2);
  nodes.connect_all();
  check_works(nodes, 1, 0);
  const int receive = nodes[0].receive(1, tag(1), 1 << 20);
  nodes[1].vanish();
  check_lost(nodes[0], receive);
  // What is asked of it later fails at once, with the same reason.
  check_lost(nodes[0], nodes[0].send(1, tag(2), 8, 1));
  check_lost(nodes[0], nodes[0].receive(1, tag(2), 8));
}

/// Kills node 1 `delay` after both have started to send 28 MiB to each other. Some messages have
/// arrived before the end, whole; the others fail; none hangs.
void kill_amid_messages(Nodes& nodes, std::chrono::microseconds delay) {
  check_works(nodes, 0, 1);
  const std::size_t bytes = 7 << 20;
  std::vector<int> sends, receives;
  for (std::uint64_t index = 0; index < 4; ++index) {
    receives.push_back(nodes[0].receive(1, tag(index), bytes));
    nodes[1].receive(0, tag(index), bytes);
  }
  for (std::uint64_t index = 0; index < 4; ++index) {
    nodes[1].send(0, tag(index), bytes, index);
    sends.push_back(nodes[0].send(1, tag(index), bytes, index));
  }
  std::this_thread::sleep_for(delay);
  nodes[1].vanish();
  for (std::uint64_t index = 0; index < 4; ++index) {
    const auto received = nodes[0].wait(receives[index], kVanished);
    if (received.ok) {
      CHECK(received.digest == digest_of_pattern(index, bytes));
    } else {
      CHECK(to_string(received.code) == to_string(Errc::transport_failed));
    }
    CHECK(nodes[0].wait(sends[index], kVanished).code != Errc::timed_out);
  }
}

std::chrono::microseconds each_delay() {
  return std::chrono::microseconds(GENERATE(0, 300, 1500, 4000));
}

TEST_CASE("a process killed in the middle of large messages", "[transport][errors]") {
  const auto backend = each_process_backend();
  const auto delay = each_delay();
  CAPTURE(to_string(backend), delay.count());
  Nodes nodes(backend, 2);
  nodes.connect_all();
  kill_amid_messages(nodes, delay);
}

// The bystander too: a process killed while it writes into a queue of shared memory would silence
// it for everyone who shares it.
TEST_CASE("its restarted successor and a bystander reach the survivor", "[transport][errors]") {
  const auto backend = each_process_backend();
  const auto delay = each_delay();
  CAPTURE(to_string(backend), delay.count());
  Nodes nodes(backend, 3);
  nodes.connect(0, 2);
  nodes.connect(0, 1);
  check_works(nodes, 2, 0);
  kill_amid_messages(nodes, delay);
  check_works(nodes, 2, 0);
  check_works(nodes, 0, 2);
  nodes.restart(1);
  nodes.connect(0, 1);
  check_works(nodes, 0, 1);
  check_works(nodes, 1, 0);
}

TEST_CASE("a process killed while its connection is idle", "[transport][errors]") {
  Nodes nodes(each_process_backend(), 3);
  nodes.connect_all();
  nodes[1].vanish();
  const auto deadline = within(std::chrono::milliseconds(kVanished));
  while (nodes[0].failures().empty() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  CHECK(nodes[0].failures() == std::vector<Peer>{1});
  check_works(nodes, 0, 2);
}

/// Connects node 1 twelve times, either end first; `talk(nodes, delay)` kills it each time, after
/// `delay`.
template <class Talk>
void kill_after_connecting(Talk talk) {
  const auto backend = each_process_backend();
  CAPTURE(to_string(backend));
  Nodes nodes(backend, 2);
  for (int round = 0; round < 12; ++round) {
    CAPTURE(round);
    round % 2 == 0 ? nodes.connect(0, 1) : nodes.connect(1, 0);
    talk(nodes, std::chrono::microseconds(40 * round));
    nodes.restart(1);
  }
}

// UCX 1.13 ends the process of a survivor that has still to answer a dead peer's first words. So
// connecting says nothing (README, decisions).
TEST_CASE("a process killed before the first message", "[transport][errors]") {
  kill_after_connecting([](Nodes& nodes, std::chrono::microseconds delay) {
    const int receive = nodes[0].receive(1, tag(1), 8);
    std::this_thread::sleep_for(delay);
    nodes[1].vanish();
    check_lost(nodes[0], receive);
  });
}

TEST_CASE("a process killed amid the first messages", "[transport][errors]") {
  kill_after_connecting([](Nodes& nodes, std::chrono::microseconds delay) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // Both are within reach.
    const int send = nodes[0].send(1, tag(1), 2 << 20, 1);
    const int receive = nodes[0].receive(1, tag(2), 2 << 20);
    nodes[1].send(0, tag(2), 2 << 20, 1);
    std::this_thread::sleep_for(delay);
    nodes[1].vanish();
    CHECK(nodes[0].wait(receive, kVanished).code != Errc::timed_out);
    CHECK(nodes[0].wait(send, kVanished).code != Errc::timed_out);
  });
}

TEST_CASE("a killed process that its parent has not reaped", "[transport][errors]") {
  // Over shared memory the keep-alive takes it for alive; the process descriptor does not.
  Nodes nodes(each_process_backend(), 2);
  nodes.connect_all();
  const int receive = nodes[0].receive(1, tag(1), 1 << 20);
  const int send = nodes[0].send(1, tag(2), 1 << 20, 1);
  nodes[1].become_zombie();
  check_lost(nodes[0], receive);
  check_lost(nodes[0], send);
}

TEST_CASE("a stopped process is left behind by disconnecting", "[transport][errors]") {
  const auto backend = each_process_backend();
  CAPTURE(to_string(backend));
  Nodes nodes(backend, 3);
  nodes.connect_all();
  check_works(nodes, 0, 1);
  nodes[1].freeze();
  const int receive = nodes[0].receive(1, tag(1), 1 << 20);
  std::vector<int> sends{nodes[0].send(1, tag(2), 4 << 20, 1)};
  // Small messages fill the queues to the stopped peer.
  for (std::uint64_t index = 10; index < 3000; ++index) {
    sends.push_back(nodes[0].send(1, tag(index), 2000, 1));
  }
  check_works(nodes, 0, 2);  // A full queue to one peer holds nobody else up.
  CHECK(nodes[0].wait(receive, 100).code == Errc::timed_out);
  nodes[0].disconnect(1);
  CHECK(nodes[0].wait(receive, kVanished).code == Errc::cancelled);
  CHECK(nodes[0].wait(sends[0], kVanished).code == Errc::cancelled);
  for (const int send : sends) CHECK(nodes[0].wait(send, kVanished).code != Errc::timed_out);
  nodes[1].vanish();
  nodes.restart(1);
  nodes.connect(0, 1);
  check_works(nodes, 1, 0);
}

TEST_CASE("a peer dies and comes back many times", "[transport][errors]") {
  const auto backend = each_process_backend();
  CAPTURE(to_string(backend));
  Nodes nodes(backend, 2);
  for (int round = 0; round < 6; ++round) {
    nodes.connect(0, 1);
    check_works(nodes, 0, 1);
    const int receive = nodes[0].receive(1, tag(1), 100);
    nodes[0].send(1, tag(2), 3 << 20, 1);
    nodes[1].vanish();
    check_lost(nodes[0], receive);
    nodes.restart(1);
  }
}

TEST_CASE("connecting to a process that has gone fails in time", "[transport][errors]") {
  Nodes nodes(each_process_backend(), 2);
  const auto address = nodes[1].address();
  nodes[1].vanish();
  const auto connected = nodes[0].connect(1, address);
  if (connected.ok) check_lost(nodes[0], nodes[0].send(1, tag(1), 1 << 20, 1));
}

}  // namespace
}  // namespace troupe::transport::testing
