#include "runtime/observe/trace_names.hpp"

#include <catch2/catch_test_macros.hpp>

#include "tests/runtime/observe/example_plan.hpp"

namespace troupe::observe {
namespace {

TEST_CASE("stages are named by module, numbered where a module is cut", "[observe]") {
  CHECK(stage_names(testing::example_plan()) ==
        std::vector<std::string>{"vision", "llm.stage0", "llm.stage1", "vision", "llm"});
}

TEST_CASE("each device of a group stands once, the first holder first", "[observe]") {
  const auto names = trace_names(testing::example_plan());
  CHECK(names.groups == std::vector<std::string>{"projector.0", "llm.embed.weight"});
  // The tied parameter has two holders on device 3.
  CHECK(names.group_devices[1] == std::vector<DeviceId>{DeviceId{1}, DeviceId{2}, DeviceId{3}});
}

TEST_CASE("slices are called what people call them", "[observe]") {
  const auto names = trace_names(testing::example_plan());
  const auto name = [&](ActionKind kind, int stage, int microbatch, int part, int group) {
    return event_name(names, {kind, StageId{stage}, MicrobatchId{microbatch}, PartId{part},
                              MessageId{}, GroupId{group}});
  };
  CHECK(name(ActionKind::forward, 0, 3, 0, -1) == "vision F mb3");
  CHECK(name(ActionKind::backward, 2, 1, 1, -1) == "llm.stage1 B mb1.1");
  CHECK(name(ActionKind::backward_weight, 4, 0, -1, -1) == "llm W mb0");
  CHECK(name(ActionKind::receive, 1, 2, 0, -1) == "llm.stage0 receive mb2");
  CHECK(name(ActionKind::reduce, -1, -1, -1, 1) == "reduce llm.embed.weight");
  CHECK(name(ActionKind::optimizer_step, 4, -1, -1, -1) == "llm optimizer");
  CHECK(name(ActionKind::commit, -1, -1, -1, -1) == "commit");
  // What the plan does not know has a number.
  CHECK(name(ActionKind::forward, 9, 0, 0, -1) == "stage9 F mb0");
  CHECK(name(ActionKind::reduce, -1, -1, -1, 7) == "reduce group7");
}

}  // namespace
}  // namespace troupe::observe
