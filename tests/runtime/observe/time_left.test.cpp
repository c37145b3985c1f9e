#include "runtime/observe/time_left.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>

namespace troupe::observe {
namespace {

using Catch::Approx;

TEST_CASE("a job of steps ends after as many as are left", "[observe]") {
  TimeLeft left({.steps = 10});
  CHECK_FALSE(left.seconds());
  left.add(1, 100, 4000);
  CHECK(left.seconds() == 36);
  left.add(2, 100, 2000);  // Of two, the mean: 3 s.
  CHECK(left.seconds() == 24);
  CHECK(left.total_steps() == 10);
  left.add(10, 100, 2000);
  CHECK(left.seconds() == 0);
}

TEST_CASE("a step that warmed up or waited says nothing about the next ones", "[observe]") {
  TimeLeft left({.steps = 1000});
  left.add(1, 100, 60'000);
  for (std::int64_t step = 2; step <= 20; ++step) left.add(step, 100, step == 11 ? 90'000 : 100);
  // A tenth of 20 is two on either side: both slow ones are left out.
  CHECK(left.step_ms() == Approx(100));
  CHECK(left.seconds().value() == Approx(98));
}

TEST_CASE("recent steps count, older ones do not", "[observe]") {
  TimeLeft left({.steps = 1000});
  for (std::int64_t step = 1; step <= 50; ++step) left.add(step, 100, 1000);
  for (std::int64_t step = 51; step <= 100; ++step) left.add(step, 100, 10);
  CHECK(left.step_ms() == Approx(10));
}

TEST_CASE("uneven steps count by their mean, not by the commonest", "[observe]") {
  // Every fourth step takes five times as long: (3 x 100 + 500) / 4 = 200 ms.
  TimeLeft left({.steps = 140});
  for (std::int64_t step = 1; step <= 40; ++step) left.add(step, 100, step % 4 == 0 ? 500 : 100);
  // Four of 40 are left out on either side: 26 of 100 and 6 of 500 remain.
  CHECK(left.step_ms() == Approx((26.0 * 100 + 6 * 500) / 32));
}

TEST_CASE("a job of tokens ends with the step that reaches them", "[observe]") {
  // 300 tokens a step: 1000 are reached in the fourth.
  TimeLeft left({.tokens = 1000});
  left.add(1, 0, 1000);
  CHECK(left.total_steps() == 0);
  CHECK_FALSE(left.seconds());
  TimeLeft even({.tokens = 1000});
  even.add(1, 300, 1000);
  CHECK(even.total_steps() == 4);
  CHECK(even.seconds() == 3);
  even.add(2, 900, 1000);
  CHECK(even.total_steps() == 2);
  CHECK(even.seconds() == 0);
}

TEST_CASE("a run that goes on has its earlier tokens behind it", "[observe]") {
  // 700 of 1000 were trained before: 300 are left, 100 of them after this step's 200.
  TimeLeft left({.tokens = 1000, .tokens_before = 700});
  left.add(8, 200, 1000);
  CHECK(left.total_steps() == 9);
  CHECK(left.seconds() == 1);
}

TEST_CASE("the time left is never below nothing nor longer than the slowest step makes it",
          "[observe][property]") {
  const auto seed = GENERATE(range(0u, 20u));
  TimeLeft left({.steps = 60});
  double slowest = 0;
  std::uint64_t state = seed;
  for (std::int64_t step = 1; step <= 60; ++step) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const double ms = 1 + static_cast<double>(state >> 54);
    slowest = std::max(slowest, ms);
    left.add(step, 10, ms);
    REQUIRE(left.seconds());
    CHECK(*left.seconds() >= 0);
    CHECK(*left.seconds() <= static_cast<double>(60 - step) * slowest / 1000);
  }
}

}  // namespace
}  // namespace troupe::observe
