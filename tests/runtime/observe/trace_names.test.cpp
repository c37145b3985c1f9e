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
  // Device 3 uses the tied parameter twice.
  CHECK(names.group_devices[1] == std::vector<DeviceId>{DeviceId{1}, DeviceId{2}, DeviceId{3}});
  // Small groups are added up by one holder each, another one for each group.
  CHECK(names.group_owners[0] == std::vector<DeviceId>{DeviceId{0}});
  CHECK(names.group_owners[1] == std::vector<DeviceId>{DeviceId{2}});
}

TEST_CASE("everybody sends to every owner of a chunk, and owners to everybody", "[observe]") {
  TraceNames names;
  names.group_devices = {{DeviceId{4}, DeviceId{5}, DeviceId{6}}};
  names.group_owners = {{DeviceId{4}, DeviceId{6}}};
  names.group_users = {3};
  const auto ends = [&](ActionKind kind, int device) {
    TraceEvent event;
    event.device = DeviceId{device};
    event.action.kind = kind;
    event.action.group = GroupId{0};
    std::vector<std::pair<int, int>> pairs;
    for (const SumEnd& end : sum_ends(names, event))
      pairs.emplace_back(end.from.value, end.to.value);
    return pairs;
  };
  using Pairs = std::vector<std::pair<int, int>>;
  CHECK((ends(ActionKind::reduce_send, 5) == Pairs{{5, 4}, {5, 6}}));
  CHECK((ends(ActionKind::reduce, 4) == Pairs{{5, 4}, {4, 5}, {6, 4}, {4, 6}}));
  CHECK((ends(ActionKind::reduce_receive, 6) == Pairs{{4, 6}}));
  CHECK(ends(ActionKind::commit, 6).empty());
  // A device on standby gives nothing and takes from both.
  names.group_devices[0].push_back(DeviceId{7});
  CHECK((ends(ActionKind::reduce, 4) == Pairs{{5, 4}, {4, 5}, {6, 4}, {4, 6}, {4, 7}}));
  CHECK((ends(ActionKind::reduce_receive, 7) == Pairs{{4, 7}, {6, 7}}));
  names.group_devices[0].resize(kSumHoldersShown + 1);
  CHECK(ends(ActionKind::reduce_send, 5).empty());
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
  CHECK(name(ActionKind::optimizer_step, -1, -1, -1, -1) == "standby optimizer");
  CHECK(name(ActionKind::send_content, -1, -1, -1, -1) == "send content");
  CHECK(name(ActionKind::receive_content, 0, 2, 0, -1) == "vision receive content mb2");
  // What the plan does not know has a number.
  CHECK(name(ActionKind::forward, 9, 0, 0, -1) == "stage9 F mb0");
  CHECK(name(ActionKind::reduce, -1, -1, -1, 7) == "reduce group7");
}

}  // namespace
}  // namespace troupe::observe
