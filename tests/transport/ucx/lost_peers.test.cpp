// What a node keeps of peers that it has lost: nothing that piles up.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/transport/checks.hpp"
#include "transport/ucx/host_checks.hpp"

namespace troupe::transport::testing {
namespace {

using std::chrono::milliseconds;
using Content = std::vector<std::byte>;

/// More than a goodbye, a forced close and the loop's next look take together (1.2 s).
constexpr milliseconds kGone{1500};
constexpr std::size_t kLarge = 1 << 20;  // Offered, not sent along.

Operation send(Transport& from, std::uint64_t index, std::shared_ptr<const Content> data) {
  return from.send(1, tag(index), {data->data(), data->size(), data});
}

/// A small and a large message each way: both sides have found the way that they take from now on.
void talk(Transport& zero, TestNode& one) {
  for (const std::size_t bytes : {std::size_t{8}, kLarge}) {
    const int there = one.receive(0, tag(1), bytes);
    const auto sent = send(zero, 1, std::make_shared<const Content>(pattern(7, bytes)));
    check_received(one, there, 7, bytes);
    REQUIRE(sent.wait(within(milliseconds(kSoon))).ok());
    const auto memory = std::make_shared<Content>(bytes);
    const auto back = zero.receive(1, tag(2), {memory->data(), bytes, memory});
    one.send(0, tag(2), bytes, 8);
    REQUIRE(back.wait(within(milliseconds(kSoon))).ok());
  }
}

/// Node 1, stopped amid what node 0 sends it.
struct Stopped {
  std::unique_ptr<TestNode> node;
  Operation offered;                    ///< Of a message that it never took.
  std::weak_ptr<const Content> buffer;  ///< Of the same.
};

/// Its queue is full, and stays so.
Stopped stop_peer(Transport& zero, const Backend& backend) {
  auto one = make_process_node(backend.name, options_of(backend, 1, nullptr));
  REQUIRE(zero.connect(1, one->address()).ok());
  REQUIRE(one->connect(0, zero.address()).ok);
  talk(zero, *one);
  one->freeze();
  auto large = std::make_shared<const Content>(4 * kLarge);
  std::weak_ptr<const Content> seen(large);
  auto offered = send(zero, 3, std::move(large));
  const auto small = std::make_shared<const Content>(2000);
  for (std::uint64_t index = 10; index < 1000; ++index) send(zero, index, small);
  return {std::move(one), std::move(offered), std::move(seen)};
}

/// Node 0 goes on without it, and its process ends. Returns the buffer of what it never took.
std::weak_ptr<const Content> lose_peer(Transport& zero, const Backend& backend) {
  const Stopped one = stop_peer(zero, backend);
  zero.disconnect(1, {Errc::cancelled, "the test disconnects", "", ""});
  const auto outcome = one.offered.wait(within(milliseconds(kSoon)));
  REQUIRE_FALSE(outcome.ok());
  CHECK(to_string(outcome.error().code) == to_string(Errc::cancelled));
  return one.buffer;
}

TEST_CASE("peers that were lost leave neither descriptors nor buffers", "[transport][errors]") {
  const Backend backend{"ucx", GENERATE("posix,sysv,self,tcp", "self,tcp"), true};
  CAPTURE(to_string(backend));
  auto created = create_transport(backend.name, options_of(backend, 0, nullptr));
  REQUIRE(created.ok());
  const auto zero = std::move(created).value();
  lose_peer(*zero, backend);
  std::this_thread::sleep_for(kGone);
  // What the first peer ever takes, such as UCX's own timers, stays.
  const auto before = open_descriptors().size();
  std::vector<std::weak_ptr<const Content>> buffers;
  for (int round = 0; round < 3; ++round) buffers.push_back(lose_peer(*zero, backend));
  const auto all_gone = [&] {
    return open_descriptors().size() <= before &&
           std::ranges::all_of(buffers, [](const auto& buffer) { return buffer.expired(); });
  };
  const auto deadline = within(milliseconds(kSoon));
  while (!all_gone() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(milliseconds(20));
  }
  CHECK(open_descriptors().size() <= before);
  for (const auto& buffer : buffers) CHECK(buffer.expired());
}

TEST_CASE("processes that have gone leave no descriptors of trying to reach them",
          "[transport][errors]") {
  const Backend backend{"ucx", GENERATE("posix,sysv,self,tcp", "self,tcp"), true};
  CAPTURE(to_string(backend));
  auto created = create_transport(backend.name, options_of(backend, 0, nullptr));
  REQUIRE(created.ok());
  const auto zero = std::move(created).value();
  const auto address = make_process_node(backend.name, options_of(backend, 1, nullptr))->address();
  const auto try_it = [&] {
    // Told at once or later, as the system refuses.
    if (!zero->connect(1, address).ok()) return;
    const auto sent = send(*zero, 1, std::make_shared<const Content>(8));
    CHECK_FALSE(sent.wait(within(milliseconds(kVanished))).ok());
    zero->disconnect(1, {Errc::cancelled, "the test disconnects", "", ""});
  };
  try_it();
  std::this_thread::sleep_for(kGone);
  const auto before = open_descriptors().size();
  for (int round = 0; round < 5; ++round) try_it();
  std::this_thread::sleep_for(kGone);
  CHECK(open_descriptors().size() <= before);
}

TEST_CASE("a transport ends though a peer that was stopped has a full queue",
          "[transport][errors]") {
  const Backend backend{"ucx", "posix,sysv,self,tcp", true};
  auto created = create_transport(backend.name, options_of(backend, 0, nullptr));
  REQUIRE(created.ok());
  auto zero = std::move(created).value();
  const Stopped one = stop_peer(*zero, backend);
  const auto begun = std::chrono::steady_clock::now();
  zero.reset();
  CHECK(std::chrono::steady_clock::now() - begun < milliseconds(kSoon));
  CHECK_FALSE(one.offered.wait(within(milliseconds(kSoon))).ok());
  CHECK(one.buffer.expired());
}

}  // namespace
}  // namespace troupe::transport::testing
