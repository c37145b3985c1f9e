#include "actors/node/wait_watch.hpp"

#include <catch2/catch_test_macros.hpp>

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

constexpr Time kStart{1h};

/// Two devices of a node, and what is told of them at looks every 200 ms.
struct Watched {
  /// Looks until this time after the beginning: what the last look told.
  std::optional<engine::LongWaits> look_until(Duration end, Duration interval = 1s) {
    std::optional<engine::LongWaits> told;
    for (; looked <= end; looked += kLookInterval)
      told = watch.pass(kStart + looked, interval, devices);
    return told;
  }

  WaitWatch watch;
  WorkOfDevices devices{{0, std::make_shared<engine::WorkInHand>()},
                        {1, std::make_shared<engine::WorkInHand>()}};
  Duration looked{};
};

/// For messages of so many devices.
engine::LongWait wait_for(int senders) {
  engine::LongWait wait{DeviceId{4}, 3, 1, 2};
  for (int sender = 0; sender < senders; ++sender)
    wait.awaited.push_back(engine::AwaitedMessage{DeviceId{sender}});
  return wait;
}

TEST_CASE("waits are told at half of the time after which silence counts", "[actors]") {
  CHECK(long_wait_interval(3) == 1500ms);
}

TEST_CASE("a wait is told once it has lasted, and until it is over", "[actors]") {
  Watched watched;
  CHECK_FALSE(watched.look_until(0s));  // Nothing is waited for.
  watched.devices.at(1)->waits(wait_for(1));
  CHECK_FALSE(watched.look_until(1s));  // Seen at 0.2 s for the first time.
  const auto told = watched.look_until(2s);
  REQUIRE(told);
  REQUIRE(told->waits.size() == 1);
  CHECK(told->waits[0].device == DeviceId{4});
  CHECK(told->waits[0].next_action == 2);
  CHECK(told->waits[0].awaited.size() == 1);
  CHECK(told->waits[0].seconds == 1.8);
  CHECK_FALSE(watched.look_until(2800ms));  // Not more often.
  REQUIRE(watched.look_until(3s));
  const auto work = std::make_shared<engine::Launch>();
  watched.devices.at(1)->launched(nullptr, work);
  const auto over = watched.look_until(4s);
  REQUIRE(over);
  CHECK(over->waits.empty());
  CHECK_FALSE(watched.look_until(10s));
}

TEST_CASE("a wait begins anew where something of it has come", "[actors]") {
  Watched watched;
  watched.devices.at(0)->waits(wait_for(2));
  REQUIRE(watched.look_until(1s));
  watched.devices.at(0)->waits(wait_for(1));
  const auto told = watched.look_until(2s);
  REQUIRE(told);  // That it is over.
  CHECK(told->waits.empty());
  const auto again = watched.look_until(3s);
  REQUIRE(again);
  CHECK(again->waits.at(0).seconds == 1.8);
}

TEST_CASE("whom the node does not hear is told as a wait is, and when that is over", "[actors]") {
  Watched watched;
  const std::vector<engine::SilentPeer> silent{{NodeId{3}, 1, 2.0}};
  const auto told = watched.watch.pass(kStart, 1s, watched.devices, silent);
  REQUIRE(told);
  CHECK(told->waits.empty());
  REQUIRE(told->silent.size() == 1);
  CHECK(told->silent[0].peer == NodeId{3});
  const auto over = watched.watch.pass(kStart + 1s, 1s, watched.devices);
  REQUIRE(over);
  CHECK(over->silent.empty());
  CHECK_FALSE(watched.watch.pass(kStart + 2s, 1s, watched.devices));
}

TEST_CASE("time in which the node was held up itself does not count as its devices' wait",
          "[actors]") {
  Watched watched;
  watched.devices.at(0)->waits(wait_for(1));
  CHECK_FALSE(watched.look_until(200ms));
  CHECK_FALSE(watched.watch.pass(kStart + 1h, 1s, watched.devices));
  const auto told = watched.watch.pass(kStart + 2h, 1s, watched.devices);
  REQUIRE(told);  // 0.2 s, and twice 0.4 s.
  CHECK(told->waits.at(0).seconds == 1.0);
}

}  // namespace
}  // namespace troupe::actors
