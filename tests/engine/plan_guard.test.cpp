#include "engine/iteration/plan_guard.hpp"

#include <catch2/catch_test_macros.hpp>

#include "scheduler/iteration/plan_iteration.hpp"
#include "scheduler/layout/place_by_hand.hpp"
#include "tests/scheduler/example_models.hpp"

namespace troupe::engine {
namespace {

/// Two llm stages on two devices, two samples.
struct Planned {
  ParallelPlan plan = scheduler::place_by_hand(scheduler::testing::text_llm(2), {}, {2, 1}).value();
  IterationPlan iteration;

  Planned() {
    scheduler::IterationInput input;
    input.step = 7;
    input.samples = {scheduler::testing::sample(0, 0), scheduler::testing::sample(0, 0)};
    input.microbatches = scheduler::assign_by_count(plan, 2, 2);
    iteration = scheduler::plan_iteration(plan, input).value();
  }
};

TEST_CASE("a sound plan passes, one with a fault does not", "[engine][errors]") {
  Planned planned;
  PlanGuard guard(planned.plan);
  CHECK(guard.pass(planned.iteration, 1e9).ok());
  CHECK(guard.check_ms() > 0);
  planned.iteration.actions[1].pop_back();
  const auto refused = guard.pass(planned.iteration, 1e9);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::internal);
  CHECK(refused.error().message.starts_with("the plan of step 7 is unsound (1 faults): "));
}

TEST_CASE("plans of steps that are short beside a check are checked now and then", "[engine]") {
  const Planned planned;
  const auto checks = [&](double step_ms) {
    PlanGuard guard(planned.plan);
    std::int64_t count = 0;
    for (int i = 0; i < 201; ++i) {
      REQUIRE(guard.pass(planned.iteration, step_ms).ok());
      count += guard.check_ms() > 0 ? 1 : 0;
    }
    return count;
  };
  CHECK(checks(1e-6) == 3);  // The first, the 101st, the 201st.
  CHECK(checks(1e9) == 201);
  CHECK(checks(0) == 201);  // Nobody knows what a step takes.
}

}  // namespace
}  // namespace troupe::engine
