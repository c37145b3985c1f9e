#include "scheduler/plan_iteration.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "scheduler/place_by_hand.hpp"
#include "tests/scheduler/example_models.hpp"

namespace troupe::scheduler {
namespace {

using testing::sample;
using testing::text_llm;
using testing::vision_audio_llm;

/// The compute of a device as `F0 F1 B0`.
std::string compute_of(const std::vector<Action>& actions) {
  std::string text;
  for (const auto& action : actions) {
    const char* name = action.kind == ActionKind::forward           ? "F"
                       : action.kind == ActionKind::backward        ? "B"
                       : action.kind == ActionKind::backward_input  ? "I"
                       : action.kind == ActionKind::backward_weight ? "W"
                                                                    : nullptr;
    if (name)
      text +=
          (text.empty() ? "" : " ") + std::string(name) + std::to_string(action.microbatch.value);
  }
  return text;
}

TEST_CASE("1F1B runs as many forwards as stages are left, then pairs, then drains", "[scheduler]") {
  // Four stages, six microbatches: stage r runs 4 - r forwards, then 6 - 4 + r (backward, forward)
  // pairs, then 4 - r backwards.
  const auto plan = place_by_hand(text_llm(4), {}, {4, 1}).value();
  IterationInput input;
  for (int i = 0; i < 6; ++i) input.samples.push_back(sample(0, 0));
  input.microbatches = assign_by_count(6, 1, 6);
  const auto iteration = plan_iteration(plan, input).value();
  CHECK(compute_of(iteration.actions[0]) == "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5");
  CHECK(compute_of(iteration.actions[1]) == "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5");
  CHECK(compute_of(iteration.actions[2]) == "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5");
  CHECK(compute_of(iteration.actions[3]) == "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5");
  CHECK(iteration.max_in_flight == std::vector<std::int32_t>{4, 3, 2, 1});
}

}  // namespace
}  // namespace troupe::scheduler
