#include "engine/learning/stage_speeds.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <limits>

#include "tests/engine/measured_events.hpp"

namespace troupe::engine {
namespace {

using Times = std::vector<double>;

void learn(StageSpeeds& speeds, const Times& profile_ms, const Times& measured_ms) {
  speeds.learn(profile_ms, measured_ms);
}

TEST_CASE("a stage's time is its compute and its update, without waiting", "[engine]") {
  const std::vector events{
      slice(ActionKind::forward, 0, 5),         slice(ActionKind::backward, 0, 7),
      slice(ActionKind::receive, 0, 500),       slice(ActionKind::optimizer_step, 0, 4),
      slice(ActionKind::reduce, 1, 100),        slice(ActionKind::backward_input, 1, 2),
      slice(ActionKind::backward_weight, 1, 3), slice(ActionKind::optimizer_step, -1, 70)};
  CHECK((measured_stage_ms(3, events) == Times{16, 5, 0}));
}

TEST_CASE("nothing is known before a step", "[engine]") {
  StageSpeeds speeds;
  CHECK_FALSE(speeds.known());
  CHECK(speeds.factor(StageId{0}) == 1);
  learn(speeds, {10, 10}, {0, 0});  // A step without samples.
  CHECK_FALSE(speeds.known());
}

TEST_CASE("the first step counts only until the second, then newer ones weigh more", "[engine]") {
  StageSpeeds speeds;
  learn(speeds, {10, 10}, {50, 10});
  CHECK(speeds.known());
  CHECK(speeds.factor(StageId{0}) == 5);
  CHECK(speeds.factor(StageId{1}) == 1);
  learn(speeds, {10, 10}, {20, 10});
  CHECK(speeds.factor(StageId{0}) == 2);
  learn(speeds, {10, 10}, {40, 10});
  CHECK(speeds.factor(StageId{0}) == 3);
  for (int i = 0; i < 20; ++i) learn(speeds, {10, 10}, {12, 5});
  CHECK(speeds.factor(StageId{0}) == Catch::Approx(1.2).epsilon(1e-4));
  CHECK(speeds.factor(StageId{1}) == Catch::Approx(0.5).epsilon(1e-4));
}

TEST_CASE("a run that goes on has the speeds of before, and its first step warms up", "[engine]") {
  StageSpeeds before, after;
  for (int i = 0; i < 3; ++i) learn(before, {10, 10}, {20, 30});
  after.restore(before.factors(), before.steps());
  CHECK(after.known());
  CHECK(after.factor(StageId{0}) == 2);
  CHECK(after.factor(StageId{1}) == 3);
  learn(after, {10, 10}, {900, 900});
  CHECK(after.factor(StageId{0}) == 2);
  learn(after, {10, 10}, {40, 30});
  CHECK(after.factor(StageId{0}) == 3);  // As if it had never stopped: half of each.

  StageSpeeds nothing;
  nothing.restore({}, 0);
  learn(nothing, {10}, {50});
  CHECK(nothing.factor(StageId{0}) == 5);
}

TEST_CASE("a stage without a time keeps what is known of it", "[engine]") {
  const double infinite = std::numeric_limits<double>::infinity();
  StageSpeeds speeds;
  learn(speeds, {10, 10}, {20, 0});
  CHECK(speeds.factor(StageId{1}) == 1);
  learn(speeds, {10, 0}, {20, 20});  // Frozen, and without rows to compute.
  CHECK(speeds.factor(StageId{1}) == 1);
  learn(speeds, {10, 10}, {infinite, 30});
  CHECK(speeds.factor(StageId{0}) == 2);
  CHECK(speeds.factor(StageId{1}) == 3);  // Its first time, whatever others know.
}

}  // namespace
}  // namespace troupe::engine
