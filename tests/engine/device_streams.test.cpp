#include "tests/torch_catch.hpp"

#include "engine/execution/device_streams.hpp"

#include <catch2/matchers/catch_matchers_string.hpp>
#include <optional>
#include <set>
#include <vector>

#include "engine/execution/device_place.hpp"
#include "tests/engine/apart_device.hpp"

namespace troupe::engine {
namespace {

/// One that no other test takes streams of; it has 32 of them.
c10::Device lonely() {
  static_cast<void>(apart());
  return find_place("apart", 2).value();
}

TEST_CASE("a stream that is held is nobody else's, however many come and go", "[engine]") {
  const auto held = DeviceStreams::take(lonely()).value();
  for (int round = 0; round < 40; ++round) {
    const auto other = DeviceStreams::take(lonely()).value();
    REQUIRE(*other != *held);
  }
  // Of another device it is another one.
  CHECK(*DeviceStreams::take(apart().place).value() != *held);
}

TEST_CASE("a device hands out all of its streams once, and no more", "[engine][errors]") {
  std::vector<DeviceStreams::Own> held;
  std::set<c10::StreamId> numbers;
  std::optional<Error> refused;
  for (int more = 0; more < 100 && !refused; ++more) {
    auto taken = DeviceStreams::take(lonely());
    if (!taken.ok()) {
      refused = taken.error();
      continue;
    }
    held.push_back(std::move(taken).value());
    numbers.insert(held.back()->id());
  }
  REQUIRE(refused);
  CHECK(held.size() == 32);
  CHECK(numbers.size() == 32);
  CHECK_FALSE(numbers.contains(0));  // The default one.
  CHECK(refused->code == Errc::unavailable);
  CHECK(refused->message.starts_with("all 32 streams of "));
  CHECK_THAT(refused->fix, Catch::Matchers::ContainsSubstring("cluster.rows = \"messages\""));
  // What was given back first comes first.
  const auto first = held[7]->id(), second = held[3]->id();
  held[7].reset();
  held[3].reset();
  held[7] = DeviceStreams::take(lonely()).value();
  held[3] = DeviceStreams::take(lonely()).value();
  CHECK(held[7]->id() == first);
  CHECK(held[3]->id() == second);
  CHECK_FALSE(DeviceStreams::take(lonely()).ok());
}

}  // namespace
}  // namespace troupe::engine
