// Plans whose encoders take samples in pieces.

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <string>

#include "scheduler/check/check_plan.hpp"
#include "scheduler/iteration/plan_iteration.hpp"
#include "scheduler/layout/place_by_hand.hpp"
#include "tests/scheduler/example_models.hpp"

namespace troupe::scheduler {
namespace {

using testing::sample;
using testing::vision_audio_llm;

TEST_CASE("pieces of a sample go to its llm part from wherever they were encoded", "[scheduler]") {
  HandLayout layout;
  layout.replicas = {{{"vision", "audio"}, {{0, 0, {{"vision", {}}, {"audio", {}}}}}},
                     {{"vision", "audio"}, {{1, 0, {{"vision", {}}, {"audio", {}}}}}},
                     {{"llm"}, {{2, 0, {{"llm", {}}}}}}};
  const auto plan = place_by_hand(vision_audio_llm(), layout, {3, 1}).value();
  IterationInput input;
  input.samples = {sample(5, 1), sample(1, 0)};
  input.pieces = {{0, ModuleId{0}, 0, 2}, {0, ModuleId{0}, 2, 3}, {0, ModuleId{2}, 0, 1}};
  input.microbatches = {{{{{{2, 1}}}}}, {{{{{4, 3}}}}}, {{{{{1, 0}}}}}};
  const auto iteration = plan_iteration(plan, input).value();
  CHECK(check(plan, iteration).empty());
  std::map<std::pair<StageId, ModuleId>, const Message*> found;
  for (const Message& message : iteration.messages)
    if (message.boundary) found[{message.source.stage, message.module}] = &message;
  REQUIRE(found.size() == 3);
  for (const auto& [key, message] : found) CHECK(message->destination.stage == StageId{2});
  const auto rows = [&](std::int32_t stage, std::int32_t module) {
    return found.at({StageId{stage}, ModuleId{module}});
  };
  // Pictures come from projectors, two rows each; a window has five.
  CHECK((rows(0, 1)->samples == std::vector<std::int32_t>{2, 1}));
  CHECK(rows(0, 1)->rows == 6);
  CHECK((rows(1, 1)->samples == std::vector<std::int32_t>{3}));
  CHECK(rows(1, 1)->rows == 6);
  CHECK((rows(1, 3)->samples == std::vector<std::int32_t>{4}));
  CHECK(rows(1, 3)->rows == 5);
}

TEST_CASE("pieces that are not a whole sample are refused with the fix", "[scheduler][errors]") {
  const auto plan = place_by_hand(vision_audio_llm(), {}, {1, 1}).value();
  const auto refused = [&](const IterationInput& wrong, const std::string& part) {
    const auto result = plan_iteration(plan, wrong);
    REQUIRE_FALSE(result.ok());
    CHECK(result.error().code == Errc::invalid_argument);
    INFO(result.error().message);
    CHECK(result.error().message.find(part) != std::string::npos);
    CHECK_FALSE(result.error().fix.empty());
  };
  IterationInput input;
  input.samples = {sample(0, 0), sample(0, 0)};
  input.microbatches = assign_by_count(plan, 2, 2);
  input.samples[0] = sample(3, 0);
  input.pieces = {{0, ModuleId{0}, 0, 2},
                  {0, ModuleId{0}, 2, 1},
                  {0, ModuleId{0}, 1, 2},
                  {0, ModuleId{0}, 1, 1}};
  auto& encoded = input.microbatches[0][0].parts[0].samples;
  encoded = {2, 3};
  CHECK(plan_iteration(plan, input).ok());
  const auto pieces = [&](std::vector<std::int32_t> units, const std::string& part) {
    encoded = std::move(units);
    refused(input, part);
  };
  pieces({2}, "are not the whole sample");
  pieces({2, 4}, "are not the whole sample");
  pieces({2, 3, 3}, "are not the whole sample");
  pieces({0, 2, 3}, "whole and in pieces");
  pieces({2, 5}, "are not the whole sample");  // As many items, but not all.
  pieces({2, 6}, "piece 6 of 6");
  encoded = {2, 3};
  input.microbatches[1][0].parts[0].samples = {2, 3};
  refused(input, "in llm are not the whole sample");
  input.microbatches[1][0].parts[0].samples = {0};
  input.pieces[1].count = 2;
  refused(input, "piece 1 is of items that are not there");
}

}  // namespace
}  // namespace troupe::scheduler
