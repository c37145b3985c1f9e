#include "transport/ucx/opening.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tests/transport/checks.hpp"

namespace troupe::transport::testing {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("a connection is late after its time, of which being held up oneself counts little",
          "[transport]") {
  const Opening::Time begin{};
  Opening opening(begin, 1s);
  CHECK_FALSE(opening.is_late(begin + 400ms));
  // By hand: of 60 s it did not look 500 ms count; 900 ms so far.
  CHECK_FALSE(opening.is_late(begin + 60s));
  CHECK_FALSE(opening.is_late(begin + 60s + 100ms));
  CHECK(opening.is_late(begin + 60s + 101ms));
}

/// What node 0 of this process hears of peers that it loses.
struct Lost {
  std::mutex mutex;
  std::vector<std::pair<Peer, bool>> peers;  ///< And whether their connection had been up.

  std::vector<std::pair<Peer, bool>> so_far() {
    const std::lock_guard lock(mutex);
    return peers;
  }
  std::vector<std::pair<Peer, bool>> soon() {
    const auto deadline = within(std::chrono::milliseconds(kVanished));
    while (so_far().empty() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(5ms);
    }
    return so_far();
  }
};

Backend each_process_backend() {
  return {"ucx", GENERATE("posix,sysv,self,tcp", "self,tcp"), true};
}

TransportOptions options_with(const Backend& backend, Peer self, std::chrono::milliseconds bound) {
  auto options = options_of(backend, self, nullptr);
  options.ucx.connect_timeout = bound;
  return options;
}

std::unique_ptr<Transport> make_zero(const TransportOptions& options,
                                     const std::shared_ptr<Lost>& lost) {
  auto created = create_transport("ucx", options);
  REQUIRE(created.ok());
  created.value()->on_peer_failure([lost](Peer peer, const Error&, bool was_up) {
    const std::lock_guard lock(lost->mutex);
    lost->peers.emplace_back(peer, was_up);
  });
  return std::move(created).value();
}

/// A small and a large message each way.
void talk(Transport& zero, TestNode& one) {
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{1} << 20}) {
    const auto memory = std::make_shared<std::vector<std::byte>>(pattern(7, bytes));
    const int there = one.receive(0, tag(1), bytes);
    const auto sent = zero.send(1, tag(1), {memory->data(), bytes, memory});
    check_received(one, there, 7, bytes);
    REQUIRE(sent.wait(within(std::chrono::milliseconds(kSoon))).ok());
    const auto room = std::make_shared<std::vector<std::byte>>(bytes);
    const auto back = zero.receive(1, tag(2), {room->data(), bytes, room});
    one.send(0, tag(2), bytes, 8);
    REQUIRE(back.wait(within(std::chrono::milliseconds(kSoon))).ok());
  }
}

TEST_CASE("a connection that does not come up is lost in its time, and was never up",
          "[transport][errors]") {
  const auto backend = each_process_backend();
  CAPTURE(to_string(backend));
  const auto lost = std::make_shared<Lost>();
  const auto zero = make_zero(options_with(backend, 0, 500ms), lost);
  const auto one = make_process_node("ucx", options_of(backend, 1, nullptr));
  const auto address = one->address();
  one->freeze();  // The system takes the connection; nobody answers to it.
  const auto begun = std::chrono::steady_clock::now();
  REQUIRE(zero->connect(1, address).ok());
  const auto room = std::make_shared<std::vector<std::byte>>(8);
  const auto outcome = zero->receive(1, tag(1), {room->data(), 8, room})
                           .wait(within(std::chrono::milliseconds(kSoon)));
  CHECK(std::chrono::steady_clock::now() - begun >= 500ms);
  REQUIRE_FALSE(outcome.ok());
  CHECK(to_string(outcome.error().code) == to_string(Errc::transport_failed));
  CHECK_THAT(outcome.error().message,
             ContainsSubstring(
                 "peer 1 is out of reach: the connection to it did not come up within 0.5 s"));
  CHECK((lost->soon() == std::vector<std::pair<Peer, bool>>{{1, false}}));
}

TEST_CASE("a connection that says nothing stays, and a peer may connect much later",
          "[transport]") {
  const auto backend = each_process_backend();
  CAPTURE(to_string(backend));
  const auto lost = std::make_shared<Lost>();
  constexpr auto kBound = 1000ms, kLonger = 1500ms;
  const auto zero = make_zero(options_with(backend, 0, kBound), lost);
  const auto one = make_process_node("ucx", options_with(backend, 1, kBound));
  REQUIRE(zero->connect(1, one->address()).ok());
  std::this_thread::sleep_for(kLonger);
  REQUIRE(one->connect(0, zero->address()).ok);
  std::this_thread::sleep_for(kLonger);
  CHECK(lost->so_far().empty());
  CHECK(one->failures().empty());
  talk(*zero, *one);
}

TEST_CASE("a connection that breaks had been up, if for a moment", "[transport][errors]") {
  const auto backend = each_process_backend();
  CAPTURE(to_string(backend));
  const auto lost = std::make_shared<Lost>();
  const auto zero = make_zero(options_of(backend, 0, nullptr), lost);
  const auto one = make_process_node("ucx", options_of(backend, 1, nullptr));
  REQUIRE(zero->connect(1, one->address()).ok());
  REQUIRE(one->connect(0, zero->address()).ok);
  talk(*zero, *one);
  one->vanish();
  CHECK((lost->soon() == std::vector<std::pair<Peer, bool>>{{1, true}}));
}

}  // namespace
}  // namespace troupe::transport::testing
