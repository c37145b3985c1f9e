#include "scheduler/layout/phase_memory.hpp"

#include <catch2/catch_test_macros.hpp>

#include "scheduler/simulate/memory_bounds.hpp"

namespace troupe::scheduler {
namespace {

TEST_CASE("a window is as wide as the narrowest encoder has room for", "[scheduler]") {
  // Device 0: 60 bytes of state, encoder and llm share 40: four microbatches of 5 bytes. Device 1:
  // 80 of state and an encoder alone: six microbatches of 3.
  PhaseMemory held(2, 100);
  held.add(0, true, 20, 5);
  held.add(0, false, 40, 8);
  held.add(1, true, 80, 3);
  CHECK(held.least_bytes() == 83);
  CHECK(held.windows(4) == 1);
  CHECK(held.windows(5) == 2);
  CHECK(held.windows(12) == 3);
  held.add(1, false, 14, 1);  // 6 are left for two: one microbatch.
  CHECK(held.least_bytes() == 98);
  CHECK(held.windows(12) == 12);
  // With three microbatches of another stage in flight on device 1.
  CHECK(held.wanted_bytes() == 98);
  held.add(1, false, 0, 1, 3);
  CHECK(held.wanted_bytes() == 101);
  CHECK(held.least_bytes() == 99);
}

TEST_CASE("an llm is held back as far as its share is short of what it has in flight",
          "[scheduler]") {
  PhaseMemory held(2, 100);
  held.add(0, true, 20, 5);
  held.add(0, false, 40, 8, 6);  // 40 are left for two: two of six microbatches.
  CHECK(held.held_back() == 3);
  held.add(1, false, 40, 8, 5);  // Seven alone.
  CHECK(held.held_back() == 3);
  held.add(1, true, 0, 1);  // Three of five beside another.
  CHECK(held.held_back() == 3);
  held.add(1, true, 30, 1);  // One of five.
  CHECK(held.held_back() == 5);
  PhaseMemory unlimited(1, 0);
  unlimited.add(0, false, 1e12, 1e12, 8);
  CHECK(unlimited.held_back() == 1);
}

TEST_CASE("memory without a limit holds all in one window", "[scheduler]") {
  PhaseMemory held(1, 0);
  held.add(0, true, 1e12, 1e12);
  CHECK(held.windows(1000) == 1);
  PhaseMemory none(1, 10);
  none.add(0, false, 20, 5);  // No encoder: nothing to go over in windows.
  CHECK(none.windows(1000) == 1);
}

TEST_CASE("a stage keeps at least one microbatch, whatever is left", "[scheduler]") {
  CHECK(kept_microbatches(40, 2, 5) == 4);
  CHECK(kept_microbatches(40, 2, 6) == 3);
  CHECK(kept_microbatches(0, 2, 5) == 1);
  CHECK(kept_microbatches(0, 1, 0) > 1'000'000);
}

}  // namespace
}  // namespace troupe::scheduler
