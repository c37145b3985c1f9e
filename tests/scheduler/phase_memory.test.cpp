#include "scheduler/layout/phase_memory.hpp"

#include <catch2/catch_test_macros.hpp>

namespace troupe::scheduler {
namespace {

TEST_CASE("a window is as wide as the narrowest encoder has room for", "[scheduler]") {
  // Device 0: 60 bytes of state; beside one of 8 of the llm 32 are left: six microbatches of 5.
  // Device 1: 80 of state and an encoder alone: six microbatches of 3.
  PhaseMemory held(2, 100);
  held.add(0, true, 20, 5);
  held.add(0, false, 40, 8);
  held.add(1, true, 80, 3);
  const auto windows = [&](double microbatches) { return held.pace(microbatches, 12).windows; };
  CHECK(held.least_bytes() == 83);
  CHECK(windows(6) == 1);
  CHECK(windows(7) == 2);
  CHECK(windows(18) == 3);
  held.add(1, false, 14, 1);  // 6 are left, one for the llm: one microbatch.
  CHECK(held.least_bytes() == 98);
  CHECK(windows(12) == 12);
  // With three microbatches of another stage in flight on device 1.
  CHECK(held.wanted_bytes() == 98);
  held.add(1, false, 0, 1, 3);
  CHECK(held.wanted_bytes() == 101);
  CHECK(held.least_bytes() == 99);
}

TEST_CASE("an llm is held back as far as its room is short of what it has in flight",
          "[scheduler]") {
  PhaseMemory held(2, 100);
  held.add(0, true, 20, 5);
  held.add(0, false, 40, 8, 6);
  // 40 are left: three of six microbatches in flight beside three of the encoder's, whose six make
  // two windows; four would leave room for one, six windows.
  CHECK(held.pace(6, 12).held_back == 2);
  CHECK(held.pace(6, 12).windows == 2);
  // Of 24 the same would make eight windows; beside two in flight four fit, six windows.
  CHECK(held.pace(24, 12).held_back == 3);
  CHECK(held.pace(24, 12).windows == 6);
  held.add(1, false, 60, 8, 5);  // 40 are five.
  CHECK(held.pace(6, 12).held_back == 2);
  held.add(1, false, 24, 8, 5);  // 16 are one of each.
  CHECK(held.pace(6, 12).held_back == 5);
}

TEST_CASE("memory without a limit holds all in one window", "[scheduler]") {
  PhaseMemory held(1, 0);
  held.add(0, true, 1e12, 1e12);
  held.add(0, false, 1e12, 1e12, 8);
  CHECK(held.pace(1000, 1000).windows == 1);
  CHECK(held.pace(1000, 1000).held_back == 1);
  PhaseMemory none(1, 10);
  none.add(0, false, 20, 5);  // No encoder: nothing to go over in windows.
  CHECK(none.pace(1000, 1000).windows == 1);
}

}  // namespace
}  // namespace troupe::scheduler
