#include "runtime/state/learning_rate.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

using Catch::Matchers::WithinAbs;

namespace troupe::state {
namespace {

TEST_CASE("the rate climbs linearly, peaks once and ends at the floor", "[state]") {
  // Warm-up 3: 1/4, 2/4, 3/4, then the peak at step 4. Descent over 8 - 4 = 4 steps from 1 to 0.2:
  // 0.2 + 0.4 (1 + cos(pi k / 4)) for k = 1..4, with cos = sqrt(2)/2, 0, -sqrt(2)/2, -1.
  const auto schedule = make_schedule(1e-3, 2e-4, 3, 8);
  const double root = 0.70710678118654757;
  const double expected[] = {0.25, 0.5, 0.75, 1, 0.6 + 0.4 * root, 0.6, 0.6 - 0.4 * root, 0.2};
  for (int step = 1; step <= 8; ++step)
    CHECK_THAT(learning_rate_factor(schedule, step), WithinAbs(expected[step - 1], 1e-12));
  CHECK(learning_rate_factor(schedule, 8) == schedule.min_ratio);
  CHECK(learning_rate_factor(schedule, 100) == schedule.min_ratio);
}

TEST_CASE("a job of one step trains at the peak", "[state]") {
  CHECK(learning_rate_factor(make_schedule(1e-3, 0, 0, 1), 1) == 1);
}

TEST_CASE("a job shorter than its warm-up never descends", "[state]") {
  const auto schedule = make_schedule(1e-3, 0, 10, 5);
  CHECK_THAT(learning_rate_factor(schedule, 5), WithinAbs(5.0 / 11, 1e-15));
  CHECK(learning_rate_factor(schedule, 11) == 1);
}

TEST_CASE("a floor above the peak, or no peak, gives a constant rate", "[state]") {
  CHECK(make_schedule(1e-3, 1e-2, 0, 9).min_ratio == 1);
  CHECK(make_schedule(0, 0, 0, 9).min_ratio == 1);
}

TEST_CASE("the rate never rises after its peak nor falls before", "[state][property]") {
  const auto warmup = GENERATE(0, 1, 7);
  const auto total = GENERATE(1, 2, 9, 100);
  const auto schedule = make_schedule(1, 0.1, warmup, total);
  CAPTURE(warmup, total);
  for (int step = 1; step < total + 3; ++step) {
    const double now = learning_rate_factor(schedule, step);
    const double next = learning_rate_factor(schedule, step + 1);
    CHECK(now > 0);
    CHECK(now <= 1);
    if (step <= warmup)
      CHECK(next > now);
    else
      CHECK(next <= now);
  }
}

}  // namespace
}  // namespace troupe::state
