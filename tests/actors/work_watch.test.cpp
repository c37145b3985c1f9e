#include "actors/node/work_watch.hpp"

#include <catch2/catch_test_macros.hpp>

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

constexpr Time kStart{1h};

engine::LongWork named(const Action* action, const engine::StageCall&) {
  engine::LongWork work{DeviceId{4}};
  work.work.step = action == nullptr ? 0 : action->group.value;
  return work;
}

TEST_CASE("long work is told soon enough for whoever waits for the step or the layout",
          "[actors]") {
  CHECK(long_work_interval(3600, 60) == 10s);
  CHECK(long_work_interval(8, 60) == 2s);
  CHECK(long_work_interval(3600, 16) == 4s);
}

TEST_CASE("what a device has been at for long is told until it has returned", "[actors]") {
  const WorkOfDevices devices{{0, std::make_shared<engine::WorkInHand>()},
                              {1, std::make_shared<engine::WorkInHand>()}};
  for (const auto& [device, in_hand] : devices) in_hand->belong_to(named);
  Action action;
  action.group = GroupId{7};
  WorkWatch watch;
  CHECK_FALSE(watch.pass(kStart, 0s, devices));  // Nothing to tell.
  devices.at(1)->entered(&action);
  CHECK_FALSE(watch.pass(kStart + 1s, 1h, devices));  // It has not taken an hour.
  CHECK_FALSE(watch.pass(kStart + 2s, 0s, devices));  // It is looked for once an hour.
  const Time later = kStart + 2h;
  for (const Duration wait : {0s, 1s}) {
    const auto told = watch.pass(later + wait, 0s, devices);
    REQUIRE(told);
    REQUIRE(told->works.size() == 1);
    CHECK(told->works[0].device == DeviceId{4});
    CHECK(told->works[0].work.step == 7);
    CHECK(told->works[0].seconds >= 0);
  }
  devices.at(1)->left();
  const auto over = watch.pass(later + 2s, 0s, devices);
  REQUIRE(over);
  CHECK(over->works.empty());
  CHECK_FALSE(watch.pass(later + 3s, 0s, devices));
}

}  // namespace
}  // namespace troupe::actors
