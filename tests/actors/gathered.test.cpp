#include "tests/torch_catch.hpp"

#include "actors/supervisor/gathered.hpp"

#include <catch2/generators/catch_generators.hpp>

namespace troupe::actors {
namespace {

/// A layout of one device on each of these nodes.
ParallelPlan plan_on(const std::vector<std::size_t>& nodes) {
  ParallelPlan plan;
  for (const std::size_t node : nodes) {
    plan.devices.push_back({NodeId{node}, 0});
    Stage stage;
    stage.devices = {DeviceId{plan.devices.size() - 1}};
    plan.stages.push_back(stage);
  }
  return plan;
}

engine::StepVerdict verdict(std::int64_t step) {
  engine::StepVerdict word;
  word.decision.step = word.note.step = step;
  word.decision.commit = true;
  word.note.tokens = 100 * step;
  return word;
}

/// A node that has finished this step, and heard the words on all up to it.
NodeHolding at_step(std::size_t node, std::int64_t step, EpochNumber epoch = 4) {
  NodeHolding holding;
  holding.ready.node = NodeId{node};
  holding.epoch_number = holding.newest_epoch = epoch;
  holding.plan = plan_on({0, 1, 2});
  holding.progress.step = step;
  holding.progress.tokens = 100 * step;
  for (std::int64_t i = std::max<std::int64_t>(1, step - 2); i <= step; ++i)
    holding.verdicts.push_back(verdict(i));
  return holding;
}

std::map<NodeId, NodeHolding> all(const std::vector<NodeHolding>& nodes) {
  std::map<NodeId, NodeHolding> holdings;
  for (const auto& node : nodes) holdings[node.ready.node] = node;
  return holdings;
}

TEST_CASE("nodes at the same step go on from there", "[actors][takeover]") {
  const auto gathered = weigh(all({at_step(0, 7), at_step(1, 7), at_step(2, 7)}));
  CHECK(gathered.members.size() == 3);
  CHECK(gathered.must_finish.empty());
  CHECK(gathered.must_settle.empty());
  CHECK(gathered.strays.empty());
  CHECK(gathered.progress.step == 7);
  CHECK(gathered.progress.tokens == 700);
  CHECK(gathered.epoch_number == 4);
  REQUIRE(gathered.verdicts.size() == 3);
  CHECK(gathered.verdicts.back().note.step == 7);
}

TEST_CASE("a step whose word one node heard is finished by all", "[actors][takeover]") {
  const auto gathered = weigh(all({at_step(0, 6), at_step(1, 7), at_step(2, 6)}));
  CHECK((gathered.must_finish == std::set<NodeId>{NodeId{0}, NodeId{2}}));
  CHECK(gathered.progress.step == 7);
  CHECK(gathered.progress.tokens == 700);
  CHECK(gathered.verdicts.back().note.step == 7);
}

TEST_CASE("what arrives during a step that nobody heard the word on may not be there",
          "[actors][takeover]") {
  const std::vector<Standby> arriving{{DeviceId{2}, {ModuleId{0}, 1}, {}}};
  auto nodes = all({at_step(0, 7), at_step(1, 7), at_step(2, 7)});
  for (auto& [id, node] : nodes) node.arriving = arriving;
  CHECK((weigh(nodes).arriving == arriving));
  nodes[NodeId{1}] = at_step(1, 8);  // It has, and so all were PREPARED.
  const auto gathered = weigh(nodes);
  CHECK(gathered.arriving.empty());
  CHECK((gathered.must_finish == std::set<NodeId>{NodeId{0}, NodeId{2}}));
}

TEST_CASE("who is late with the last step is missing, with its reason", "[actors][takeover]") {
  auto gathered = weigh(all({at_step(0, 7), at_step(1, 6)}));
  CHECK(missing_text(gathered) == "node 2");
  set_aside(gathered, {NodeId{1}});
  CHECK((gathered.members == std::set<NodeId>{NodeId{0}}));
  CHECK(gathered.must_finish.empty());
  CHECK(missing_text(gathered) == "node 1 (it did not finish step 7 in time) and node 2");
}

// Window: the next head does not reach a node
TEST_CASE("who is not reached is missing, with its reason, and its word on a step counts",
          "[actors][takeover]") {
  auto gathered = weigh(all({at_step(0, 6), at_step(1, 7), at_step(2, 6)}));
  const Error why{Errc::transport_failed, "refused", {}, {}};
  set_unreached(gathered, {{NodeId{1}, why}, {NodeId{2}, why}});
  CHECK((gathered.members == std::set<NodeId>{NodeId{0}}));
  CHECK((gathered.must_finish == std::set<NodeId>{NodeId{0}}));
  CHECK(gathered.progress.step == 7);
  CHECK(missing_text(gathered) ==
        "node 1 (the head does not reach it for tensors: refused) and "
        "node 2 (the head does not reach it for tensors: refused)");
}

TEST_CASE("who is further behind is of no use", "[actors][takeover]") {
  const auto gathered = weigh(all({at_step(0, 7), at_step(1, 5), at_step(2, 7)}));
  CHECK((gathered.members == std::set<NodeId>{NodeId{0}, NodeId{2}}));
  REQUIRE(gathered.strays.contains(NodeId{1}));
  CHECK(gathered.strays.at(NodeId{1}) == "it holds the state of step 5, others that of 7");
}

TEST_CASE("steps that run on no device set nobody behind", "[actors][takeover]") {
  NodeHolding ahead = at_step(0, 5);  // The samples of steps 6 and 7 were all bad.
  ahead.progress.step = 8;
  ahead.verdicts.push_back(verdict(8));
  const auto gathered = weigh(all({ahead, at_step(1, 5), at_step(2, 4)}));
  CHECK((gathered.must_finish == std::set<NodeId>{NodeId{1}}));
  CHECK(gathered.strays.contains(NodeId{2}));
}

TEST_CASE("who is one step behind and cannot hear the word is of no use", "[actors][takeover]") {
  NodeHolding ahead = at_step(0, 7);
  ahead.verdicts.clear();  // It came into the job after that step.
  const auto gathered = weigh(all({ahead, at_step(1, 6)}));
  CHECK(gathered.strays.contains(NodeId{1}));
  CHECK(gathered.must_finish.empty());
}

// Window: the head is lost while a layout turns over
TEST_CASE("a layout that one node turned over to is turned over to by all who fetched it",
          "[actors][takeover]") {
  NodeHolding fetched = at_step(1, 7, 4), behind = at_step(2, 7, 4);
  fetched.fetched_epoch = fetched.newest_epoch = 5;
  behind.newest_epoch = 6;  // Of a layout that came to nothing.
  NodeHolding settled = at_step(0, 7, 5);
  settled.plan = plan_on({0, 1});
  fetched.epoch_number = GENERATE(EpochNumber{4}, EpochNumber{0});  // Or it had no state before.
  const auto gathered = weigh(all({settled, fetched, behind}));
  CHECK(gathered.epoch_number == 5);
  CHECK(gathered.newest_epoch == 6);
  CHECK(gathered.plan == settled.plan);
  CHECK((gathered.must_settle == std::set<NodeId>{NodeId{1}}));
  CHECK((gathered.members == std::set<NodeId>{NodeId{0}, NodeId{1}}));
  CHECK(gathered.strays.at(NodeId{2}) == "it holds the state of layout 4, others that of 5");
}

TEST_CASE("a layout that nobody turned over to does not count", "[actors][takeover]") {
  NodeHolding fetched = at_step(1, 7);
  fetched.fetched_epoch = fetched.newest_epoch = 5;
  const auto gathered = weigh(all({at_step(0, 7), fetched, at_step(2, 7)}));
  CHECK(gathered.epoch_number == 4);
  CHECK(gathered.newest_epoch == 5);
  CHECK(gathered.must_settle.empty());
  CHECK(gathered.members.size() == 3);
  fetched.epoch_number = 0;  // It has nothing else.
  CHECK(weigh(all({at_step(0, 7), fetched, at_step(2, 7)})).strays.at(NodeId{1}) ==
        "it has not turned over to its first layout, others are in layout 4");
  CHECK(weigh(all({fetched})).members.empty());
}

TEST_CASE("a node without a device hears of no step and comes along", "[actors][takeover]") {
  NodeHolding idle = at_step(3, 2);
  idle.save_number = 9;
  const auto gathered = weigh(all({at_step(0, 7), at_step(1, 7), at_step(2, 7), idle}));
  CHECK(gathered.members.contains(NodeId{3}));
  CHECK(gathered.must_finish.empty());
  CHECK(gathered.progress.step == 7);
  CHECK(gathered.save_number == 9);
}

TEST_CASE("of nobody nothing is known", "[actors][takeover]") { CHECK(weigh({}).members.empty()); }

}  // namespace
}  // namespace troupe::actors
