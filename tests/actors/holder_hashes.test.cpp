#include "actors/supervisor/holder_hashes.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <string>
#include <utility>

namespace troupe::actors {
namespace {

using Catch::Matchers::EndsWith;

/// Two groups, `a` and `b`, on devices of these nodes.
ParallelPlan plan_on(const std::vector<std::int32_t>& nodes) {
  ParallelPlan plan;
  for (const std::int32_t node : nodes) plan.devices.push_back({NodeId{node}, 0});
  for (const char* name : {"a", "b"}) {
    ParameterGroup group;
    group.name = name;
    plan.groups.push_back(group);
  }
  return plan;
}

/// What a device says after step 5: of groups and the first digit of the hash there.
engine::DeviceReport report(std::size_t device,
                            const std::vector<std::pair<std::size_t, std::uint64_t>>& hashes) {
  engine::DeviceReport made;
  made.step = 5;
  made.device = DeviceId{device};
  for (const auto& [group, digit] : hashes) made.hashes.push_back({GroupId{group}, 0, digit << 60});
  return made;
}

TEST_CASE("holders that agree, or say nothing, do not disagree", "[actors]") {
  const auto plan = plan_on({0, 1});
  CHECK_FALSE(find_disagreement(plan, {}));
  CHECK_FALSE(find_disagreement(plan, {report(0, {}), report(1, {})}));
  CHECK_FALSE(find_disagreement(plan, {report(0, {{0, 7}, {1, 8}}), report(1, {{0, 7}})}));
}

// Window: holders disagree after a step
TEST_CASE("who differs from more than half of the nodes is mistrusted", "[actors]") {
  const auto plan = plan_on({0, 1, 2, 3});
  const auto found =
      find_disagreement(plan, {report(0, {{0, 7}}), report(1, {{0, 7}, {1, 1}}),
                               report(2, {{0, 6}, {1, 1}}), report(3, {{0, 7}, {1, 2}})});
  REQUIRE(found);
  CHECK_FALSE(found->is_open);
  CHECK((found->mistrusted == std::set<NodeId>{NodeId{2}, NodeId{3}}));  // Of `b` node 3 differs.
  CHECK(found->error.code == Errc::internal);
  CHECK(found->error.message ==
        "holders of 'a' disagree after step 5: 3 nodes have the same, but not node 2");
}

TEST_CASE("of as many nodes on both sides nobody is right", "[actors]") {
  const auto plan = plan_on({0, 1, 2, 3});
  const auto found = find_disagreement(
      plan, {report(0, {{1, 1}}), report(1, {{1, 1}}), report(2, {{1, 2}}), report(3, {{1, 2}})});
  REQUIRE(found);
  CHECK(found->is_open);
  CHECK(found->mistrusted.empty());
  CHECK_THAT(found->error.message,
             EndsWith("'b' disagree after step 5: node 0 has 10000000, node 1 has 10000000, "
                      "node 2 has 20000000, node 3 has 20000000"));
}

TEST_CASE("several devices of a node have one voice, or none", "[actors]") {
  // Node 0 has three devices: of three nodes two agree, whatever the number of devices.
  const auto plan = plan_on({0, 0, 0, 1, 2});
  const auto found =
      find_disagreement(plan, {report(0, {{0, 1}}), report(1, {{0, 1}}), report(2, {{0, 1}}),
                               report(3, {{0, 2}}), report(4, {{0, 2}})});
  REQUIRE(found);
  CHECK((found->mistrusted == std::set<NodeId>{NodeId{0}}));
  // Its own differ: it agrees with nobody, and two of three do.
  const auto torn = find_disagreement(
      plan, {report(0, {{0, 1}}), report(1, {{0, 2}}), report(3, {{0, 2}}), report(4, {{0, 2}})});
  REQUIRE(torn);
  CHECK_FALSE(torn->is_open);
  CHECK((torn->mistrusted == std::set<NodeId>{NodeId{0}}));
  const auto alone = find_disagreement(plan, {report(0, {{0, 1}}), report(1, {{0, 2}})});
  REQUIRE(alone);
  CHECK(alone->is_open);
}

}  // namespace
}  // namespace troupe::actors
