// The suite that every backend passes, with nodes as threads and, where it can, as processes.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <random>

#include "tests/transport/checks.hpp"

namespace troupe::transport::testing {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("a message arrives whole, whichever side comes first", "[transport]") {
  BACKEND();
  Nodes nodes(backend, 2);
  nodes.connect_all();
  std::uint64_t index = 0;
  for (const std::size_t bytes : {0u, 1u, 1000u, 70000u, 1u << 20, (8u << 20) + 3u}) {
    for (const bool receive_first : {true, false}) {
      CAPTURE(bytes, receive_first);
      ++index;
      int receive = receive_first ? nodes[1].receive(0, tag(index), bytes) : -1;
      const int send = nodes[0].send(1, tag(index), bytes, index);
      if (!receive_first) receive = nodes[1].receive(0, tag(index), bytes);
      check_received(nodes[1], receive, index, bytes);
      CHECK(nodes[0].wait(send, kSoon).ok);
    }
  }
}

TEST_CASE("messages with the same tag match in the order of the calls", "[transport]") {
  BACKEND();
  Nodes nodes(backend, 2);
  nodes.connect_all();
  // Sizes that take different roads in one backend must not overtake each other.
  const std::vector<std::size_t> sizes{3 << 20, 8, 100000, 0, 20000, 1 << 20};
  const bool receive_first = GENERATE(true, false);
  std::vector<int> receives;
  const auto post = [&] {
    for (const auto bytes : sizes) receives.push_back(nodes[1].receive(0, tag(1), bytes));
  };
  if (receive_first) post();
  for (std::size_t i = 0; i < sizes.size(); ++i) nodes[0].send(1, tag(1), sizes[i], i);
  if (!receive_first) post();
  for (std::size_t i = 0; i < sizes.size(); ++i) check_received(nodes[1], receives[i], i, sizes[i]);
}

TEST_CASE("a node can send to itself", "[transport]") {
  BACKEND();
  Nodes nodes(backend, 1);
  const int early = nodes[0].receive(0, tag(1), 100);
  const int first = nodes[0].send(0, tag(1), 100, 7);
  const int second = nodes[0].send(0, tag(2), 1 << 20, 8);
  const int late = nodes[0].receive(0, tag(2), 1 << 20);
  check_received(nodes[0], early, 7, 100);
  check_received(nodes[0], late, 8, 1 << 20);
  CHECK(nodes[0].wait(first, kSoon).ok);
  CHECK(nodes[0].wait(second, kSoon).ok);
}

TEST_CASE("a message of the wrong size is an error that names tag and sizes",
          "[transport][errors]") {
  BACKEND();
  Nodes nodes(backend, 2);
  nodes.connect_all();
  std::uint64_t index = 0;
  for (const std::size_t sent : {50u, 300u, 200000u, 0u}) {
    for (const bool receive_first : {true, false}) {
      const auto named = make_tag(1, TagKind::gradient, 12, ++index);
      int receive = receive_first ? nodes[1].receive(0, named, 100) : -1;
      const int send = nodes[0].send(1, named, sent, 1);
      if (!receive_first) receive = nodes[1].receive(0, named, 100);
      const auto outcome = nodes[1].wait(receive, kSoon);
      CHECK(outcome.code == Errc::invalid_argument);
      CHECK_THAT(outcome.message, ContainsSubstring("gradient epoch 1 step 12") &&
                                      ContainsSubstring(std::to_string(sent) + " bytes") &&
                                      ContainsSubstring("expects 100"));
      CHECK(nodes[0].wait(send, kSoon).ok);
    }
  }
  const int receive = nodes[1].receive(0, tag(99), 10);  // The connection has not suffered.
  nodes[0].send(1, tag(99), 10, 5);
  check_received(nodes[1], receive, 5, 10);
}

TEST_CASE("nothing can be sent to or received from an unknown peer", "[transport][errors]") {
  BACKEND();
  Nodes nodes(backend, 2);
  check_ended(nodes[0], nodes[0].send(1, tag(1), 8, 1), Errc::not_found);
  check_ended(nodes[0], nodes[0].receive(1, tag(1), 8), Errc::not_found);
  nodes[0].disconnect(1);  // Ignored.
}

TEST_CASE("an address is checked before it is used", "[transport][errors]") {
  BACKEND();
  Nodes nodes(backend, 3);
  auto address = nodes[1].address();
  CHECK(nodes[0].connect(1, {}).code == Errc::invalid_argument);
  CHECK(nodes[0].connect(1, {address.begin(), address.begin() + 5}).code == Errc::invalid_argument);
  auto wrong = address;
  wrong[0] ^= std::byte{0xFF};
  CHECK(nodes[0].connect(1, wrong).code == Errc::invalid_argument);
  CHECK(nodes[0].connect(1, address).ok);
  CHECK(nodes[0].connect(1, address).code == Errc::invalid_argument);  // Connected already.
  CHECK(nodes[0].connect(2, address).code == Errc::invalid_argument);  // Node 1's address.
}

TEST_CASE("a message may arrive before its receiver has connected", "[transport]") {
  BACKEND();
  Nodes nodes(backend, 2);
  REQUIRE(nodes[0].connect(1, nodes[1].address()).ok);
  const std::size_t bytes = GENERATE(16u, 1u << 20);
  const int send = nodes[0].send(1, tag(1), bytes, 3);
  CHECK(nodes[0].wait(send, 50).code != Errc::transport_failed);
  REQUIRE(nodes[1].connect(0, nodes[0].address()).ok);
  check_received(nodes[1], nodes[1].receive(0, tag(1), bytes), 3, bytes);
  CHECK(nodes[0].wait(send, kSoon).ok);
}

TEST_CASE("a wait that reaches its deadline leaves the operation running", "[transport]") {
  BACKEND();
  Nodes nodes(backend, 2);
  nodes.connect_all();
  const int receive = nodes[1].receive(0, tag(1), 8);
  CHECK(nodes[1].wait(receive, 20).code == Errc::timed_out);
  nodes[0].send(1, tag(1), 8, 4);
  check_received(nodes[1], receive, 4, 8);
}

TEST_CASE("a withdrawn receive takes no message", "[transport]") {
  BACKEND();
  Nodes nodes(backend, 2);
  nodes.connect_all();
  const int withdrawn = nodes[1].receive(0, tag(1), 8);
  nodes[1].cancel(withdrawn);
  check_ended(nodes[1], withdrawn, Errc::cancelled);
  nodes[0].send(1, tag(1), 8, 6);
  const int receive = nodes[1].receive(0, tag(1), 8);
  check_received(nodes[1], receive, 6, 8);
  nodes[1].cancel(receive);  // Complete already: nothing happens.
  CHECK(nodes[1].wait(receive, 0).ok);
}

TEST_CASE("posted receives stay within their bound", "[transport][errors]") {
  BACKEND();
  Nodes nodes(backend, 2);
  nodes.connect_all();
  // The suite's nodes may post 64 MiB.
  const std::size_t half = 32 << 20;
  const int first = nodes[1].receive(0, tag(1), half);
  const int second = nodes[1].receive(0, tag(2), half);
  const int third = nodes[1].receive(0, tag(3), 1);
  const auto refused = nodes[1].wait(third, kSoon);
  CHECK(refused.code == Errc::infeasible);
  CHECK_THAT(refused.message, ContainsSubstring("67108864"));
  nodes[0].send(1, tag(1), half, 1);
  check_received(nodes[1], first, 1, half);
  nodes[1].cancel(second);
  check_ended(nodes[1], second, Errc::cancelled);
  const int fourth = nodes[1].receive(0, tag(4), half);  // Both have given their room back.
  const int fifth = nodes[1].receive(0, tag(5), half);
  CHECK(nodes[1].wait(fourth, 0).code == Errc::timed_out);
  CHECK(nodes[1].wait(fifth, 0).code == Errc::timed_out);
}

TEST_CASE("a peer that floods a node with unexpected messages is cut off", "[transport][errors]") {
  BACKEND();
  if (backend.name == "inproc") return;  // Keeps no copies: messages wait in their sender's memory.
  const bool is_connected = GENERATE(true, false);
  CAPTURE(is_connected);
  Nodes nodes(backend, 3);
  nodes.connect(1, 2);
  REQUIRE(nodes[0].connect(1, nodes[1].address()).ok);
  if (is_connected) REQUIRE(nodes[1].connect(0, nodes[0].address()).ok);
  // 4000 messages of 1500 bytes; the suite's nodes keep 4 MiB.
  std::vector<int> sends;
  for (std::uint64_t index = 0; index < 4000; ++index) {
    sends.push_back(nodes[0].send(1, tag(index), 1500, 1));
  }
  if (!is_connected) {
    for (const int send : sends) nodes[0].wait(send, kSoon);
    REQUIRE(nodes[1].connect(0, nodes[0].address()).ok);
  }
  CHECK(failures_soon(nodes[1], 1) == std::vector<Peer>{0});
  const auto outcome = nodes[1].wait(nodes[1].receive(0, tag(0), 1500), kSoon);
  CHECK(outcome.code == Errc::transport_failed);
  CHECK_THAT(outcome.message, ContainsSubstring("more than is kept"));
  const int receive = nodes[1].receive(2, tag(1), 10);  // Nobody else suffers.
  nodes[2].send(1, tag(1), 10, 4);
  check_received(nodes[1], receive, 4, 10);
}

TEST_CASE("messages and receives of an older epoch are dropped", "[transport]") {
  BACKEND();
  Nodes nodes(backend, 2);
  nodes.connect_all();
  const std::size_t bytes = GENERATE(16u, 1u << 20);
  const int old_receive = nodes[1].receive(0, tag(1, 1), bytes);
  const int kept_receive = nodes[1].receive(0, tag(1, 2), bytes);
  const int waiting_send = nodes[0].send(1, tag(2, 1), bytes, 1);
  nodes[1].drop_older_than(2);
  check_ended(nodes[1], old_receive, Errc::cancelled);
  check_ended(nodes[1], nodes[1].receive(0, tag(3, 1), bytes), Errc::cancelled);
  check_ended(nodes[1], nodes[1].send(0, tag(3, 1), bytes, 1), Errc::cancelled);
  CHECK(nodes[0].wait(waiting_send, kSoon).ok);  // Its memory is free again: nobody waits for it.
  CHECK(nodes[0].wait(nodes[0].send(1, tag(4, 1), bytes, 1), kSoon).ok);
  nodes[0].send(1, tag(1, 2), bytes, 9);
  check_received(nodes[1], kept_receive, 9, bytes);
}

TEST_CASE("a sender that drops an epoch has its sends back", "[transport]") {
  BACKEND();
  Nodes nodes(backend, 2);
  nodes.connect_all();
  const int to_peer = nodes[0].send(1, tag(1), 1 << 20, 1);
  const int to_self = nodes[0].send(0, tag(1), 1 << 20, 1);
  nodes[0].drop_older_than(2);
  check_ended(nodes[0], to_peer, Errc::cancelled);
  check_ended(nodes[0], to_self, Errc::cancelled);
}

TEST_CASE("every message of a random exchange arrives once and whole", "[transport][property]") {
  BACKEND();
  const auto seed = GENERATE(range(0u, 3u));
  std::mt19937 random(seed);
  Nodes nodes(backend, 3);
  nodes.connect_all();
  struct Planned {
    int from, to, receive;
    std::size_t bytes;
    bool is_send;
  };
  std::vector<Planned> steps;
  std::vector<std::size_t> sizes;
  for (std::uint64_t index = 0; index < 60; ++index) {
    const int from = static_cast<int>(random() % 3), to = static_cast<int>(random() % 3);
    sizes.push_back(random() % 3 == 0 ? random() % 400000 : random() % 5000);
    steps.push_back({from, to, static_cast<int>(index), sizes.back(), true});
    steps.push_back({from, to, static_cast<int>(index), sizes.back(), false});
  }
  std::ranges::shuffle(steps, random);
  std::vector<std::pair<int, int>> receives(60);
  for (const auto& step : steps) {
    const auto index = static_cast<std::uint64_t>(step.receive);
    if (step.is_send) {
      nodes[step.from].send(step.to, tag(index), step.bytes, index);
    } else {
      receives[index] = {step.to, nodes[step.to].receive(step.from, tag(index), step.bytes)};
    }
  }
  for (std::uint64_t index = 0; index < 60; ++index) {
    check_received(nodes[receives[index].first], receives[index].second, index, sizes[index]);
  }
}

}  // namespace
}  // namespace troupe::transport::testing
