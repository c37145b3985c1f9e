#include "runtime/observe/trace_names.hpp"

#include <catch2/catch_test_macros.hpp>

#include "tests/runtime/observe/example_plan.hpp"

namespace troupe::observe {
namespace {

TEST_CASE("stages are named by module, numbered where a module is cut", "[observe]") {
  CHECK(stage_names(testing::example_plan()) ==
        std::vector<std::string>{"vision", "llm.stage0", "llm.stage1", "vision", "llm"});
}

using Pairs = std::vector<std::pair<int, int>>;

/// (from, to) of what begins or ends in an action of group 0 on a device.
Pairs ends(const TraceNames& names, ActionKind kind, int device) {
  TraceEvent event;
  event.device = DeviceId{device};
  event.action.kind = kind;
  event.action.group = GroupId{0};
  Pairs pairs;
  for (const SumEnd& end : sum_ends(names, event)) {
    CHECK((end.begins ? end.link.from : end.link.to) == event.device);
    pairs.emplace_back(end.link.from.value, end.link.to.value);
  }
  return pairs;
}

/// Of one group of so many elements on devices of these nodes, the last ones on standby for it.
TraceNames names_of_group(const std::vector<int>& nodes, std::int64_t elements, SumOrder order,
                          std::int32_t standbys = 0) {
  ParallelPlan plan;
  ParameterGroup group{"layer", false, elements, {}, {}};
  for (const int node : nodes) {
    group.holders.push_back(DeviceId{plan.devices.size()});
    plan.devices.push_back({NodeId{node}, 0});
  }
  group.standbys = standbys;
  group.order = order;
  plan.groups = {group};
  return trace_names(plan);
}

TEST_CASE("groups have their names, and small ones one owner each", "[observe]") {
  const auto names = trace_names(testing::example_plan());
  CHECK(names.groups == std::vector<std::string>{"projector.0", "llm.embed.weight"});
  REQUIRE(names.group_links.size() == 2);
  // Device 0 adds up the first one. Device 2 the second, of which device 3 has two uses.
  for (const SumLink& link : names.group_links[0])
    CHECK((link.takes == ActionKind::reduce ? link.to : link.from) == DeviceId{0});
  CHECK(names.group_links[1].size() == 4);
  for (const SumLink& link : names.group_links[1])
    CHECK((link.takes == ActionKind::reduce ? link.to : link.from) == DeviceId{2});
}

TEST_CASE("everybody sends to every owner of a chunk, and owners to everybody", "[observe]") {
  // Two chunks, of holders 0 and 1; a device on standby gives nothing and takes from both.
  const auto names = names_of_group({0, 1, 2, 3}, 9000, SumOrder::chain, 1);
  CHECK((ends(names, ActionKind::reduce_send, 2) == Pairs{{2, 0}, {2, 1}}));
  CHECK((ends(names, ActionKind::reduce, 0) == Pairs{{1, 0}, {2, 0}, {0, 1}, {0, 2}, {0, 3}}));
  CHECK((ends(names, ActionKind::reduce_receive, 1) == Pairs{{0, 1}}));
  CHECK((ends(names, ActionKind::reduce_receive, 3) == Pairs{{0, 3}, {1, 3}}));
  CHECK(ends(names, ActionKind::commit, 1).empty());
  const std::vector<int> many(kSumHoldersShown + 1);
  CHECK(names_of_group(many, 9000, SumOrder::chain).group_links ==
        std::vector<std::vector<SumLink>>(1));
}

TEST_CASE("in a tree gradients and sums go over one device of a node", "[observe]") {
  // One chunk, of holder 0; holder 2 adds up for its node and hands the sum on.
  const auto names = names_of_group({0, 0, 1, 1}, 100, SumOrder::tree_by_node);
  CHECK((ends(names, ActionKind::reduce_send, 3) == Pairs{{3, 2}}));
  CHECK((ends(names, ActionKind::reduce_partial, 2) == Pairs{{3, 2}, {2, 0}}));
  CHECK((ends(names, ActionKind::reduce, 0) == Pairs{{1, 0}, {2, 0}, {0, 2}, {0, 1}}));
  CHECK((ends(names, ActionKind::reduce_relay, 2) == Pairs{{0, 2}, {2, 3}}));
  CHECK((ends(names, ActionKind::reduce_receive, 3) == Pairs{{2, 3}}));
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
  CHECK(name(ActionKind::reduce_partial, -1, -1, -1, 1) == "reduce on node llm.embed.weight");
  CHECK(name(ActionKind::reduce_relay, -1, -1, -1, 1) == "relay reduced llm.embed.weight");
  CHECK(name(ActionKind::optimizer_step, 4, -1, -1, -1) == "llm optimizer");
  CHECK(name(ActionKind::evict_parameters, 4, -1, -1, -1) == "llm parameters to host");
  CHECK(name(ActionKind::fetch_parameters, 4, -1, -1, -1) == "llm parameters from host");
  CHECK(name(ActionKind::fetch_state, 4, -1, -1, 1) == "moments from host llm.embed.weight");
  CHECK(name(ActionKind::offload_state, -1, -1, -1, 1) == "moments to host llm.embed.weight");
  CHECK(name(ActionKind::optimizer_step, 4, -1, -1, 1) == "optimizer llm.embed.weight");
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
