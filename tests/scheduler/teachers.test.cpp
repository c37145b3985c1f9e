// Teachers: modules whose rows enter the llm's last layer.

#include <catch2/catch_test_macros.hpp>
#include <map>

#include "scheduler/check/check_plan.hpp"
#include "scheduler/iteration/plan_iteration.hpp"
#include "scheduler/iteration/stage_graph.hpp"
#include "scheduler/layout/place_by_hand.hpp"
#include "tests/scheduler/example_models.hpp"

namespace troupe::scheduler {
namespace {

using testing::layers;
using testing::sample;

/// vision (2) -> llm (4) <- teacher (2), whose rows have 320 columns.
ModelGraph taught() {
  ModelGraph graph;
  graph.modules = {
      {"vision", ModuleKind::encoder, false, {ModuleId{2}}, layers("vision", 2), 32, 64},
      {"teacher", ModuleKind::teacher, true, {ModuleId{2}}, layers("teacher", 2), 48, 320},
      {"llm", ModuleKind::llm, false, {}, layers("llm", 4), 64, 64}};
  return graph;
}
constexpr ModuleId kVision{0}, kTeacher{1};

/// A picture of two rows where a sample has one.
SampleShape with_marker(SampleShape shape) {
  if (!shape.media.empty()) shape.markers = {{kVision, 1}};
  return shape;
}

/// Two replicas of the teacher, one of vision, and an llm of two stages.
ParallelPlan apart() {
  HandLayout layout;
  layout.replicas = {
      {{"vision"}, {{0, 0, {{"vision", {}}}}}},
      {{"teacher"}, {{1, 0, {{"teacher", {}}}}}},
      {{"teacher"}, {{2, 0, {{"teacher", {}}}}}},
      {{"llm"}, {{3, 0, {{"llm", LayerRange{0, 2}}}}, {4, 0, {{"llm", LayerRange{2, 4}}}}}}};
  return place_by_hand(taught(), layout, {5, 1}).value();
}

IterationInput two_samples() {
  IterationInput input;
  input.samples = {with_marker(sample(1, 0)), sample(0, 0)};
  const Microbatch first{{Part{{0}}}}, second{{Part{{1}}}};
  // Vision has a picture of the first alone; each teacher one of both; the llm both.
  input.microbatches = {{first, second}, {first}, {second}, {first, second}};
  return input;
}

TEST_CASE("a teacher's rows are one per token of text, and enter the llm's last layer",
          "[scheduler]") {
  const auto plan = apart();
  CHECK(plan.module_groups[1].name == "teacher");
  const auto iteration = plan_iteration(plan, two_samples()).value();
  CHECK(check(plan, iteration).empty());
  std::map<StageId, const Message*> found;
  for (const Message& message : iteration.messages)
    if (message.boundary) found[message.source.stage] = &message;
  REQUIRE(found.size() == 3);
  CHECK(found.at(StageId{0})->destination.stage == StageId{3});
  CHECK(found.at(StageId{0})->has_backward);
  for (const std::int32_t stage : {1, 2}) {
    const Message& message = *found.at(StageId{stage});
    CHECK(message.module == kTeacher);
    CHECK(message.destination.stage == StageId{4});
    CHECK(message.destination.microbatch == MicrobatchId{stage - 1});
    CHECK(message.rows == 7);  // Of text; the first sample has a picture of two more.
    CHECK(message.width == 320);
    CHECK_FALSE(message.has_backward);
  }
}

TEST_CASE("rows of a teacher that go elsewhere, or nowhere, are found", "[scheduler][errors]") {
  const auto plan = apart();
  const auto sound = plan_iteration(plan, two_samples()).value();
  const auto of_teacher = [](const Message& message) { return message.module == kTeacher; };
  auto first = sound;
  std::ranges::find_if(first.messages, of_teacher)->destination.stage = StageId{3};
  CHECK_FALSE(check(plan, first).empty());
  auto rows = sound;
  std::ranges::find_if(rows.messages, of_teacher)->rows = 9;  // Those of the picture, too.
  CHECK_FALSE(check(plan, rows).empty());
}

TEST_CASE("the llm's first stage does not wait for a teacher", "[scheduler]") {
  HandLayout layout;
  layout.pipelines = {{{0, 0, {{"vision", {}}}},
                       {1, 0, {{"teacher", {}}}},
                       {2, 0, {{"llm", LayerRange{0, 2}}}},
                       {3, 0, {{"llm", LayerRange{2, 4}}}}}};
  const auto plan = place_by_hand(taught(), layout, {4, 1}).value();
  const auto edges = pipeline_edges(plan, PipelineId{0});
  const auto has = [&](std::int32_t from, std::int32_t to) {
    return std::ranges::any_of(edges, [&](const PlanEdge& edge) {
      return edge.from == StageId{from} && edge.to == StageId{to};
    });
  };
  CHECK(has(0, 2));
  CHECK(has(1, 3));
  CHECK(has(2, 3));
  CHECK_FALSE(has(1, 2));
  CHECK(edges.size() == 3);
}

}  // namespace
}  // namespace troupe::scheduler
