#include "runtime/vocabulary/gradient_sum.hpp"

#include <catch2/catch_test_macros.hpp>
#include <set>

namespace troupe {
namespace {

ParameterGroup group_of(std::int64_t elements, std::int32_t holders) {
  ParameterGroup group{"layer", false, elements, {}, {}};
  for (std::int32_t h = 0; h < holders; ++h) group.holders.push_back(DeviceId{h});
  return group;
}

TEST_CASE("chunks cover a group once, and no holder owns two", "[vocabulary][property]") {
  for (const std::int64_t elements : {1, 5, 4095, 4096, 8191, 8192, 100'003, 5'000'000})
    for (std::int32_t holders = 1; holders <= 80; ++holders) {
      CAPTURE(elements, holders);
      const auto group = group_of(elements, holders);
      std::int64_t next = 0;
      std::set<std::int32_t> owners;
      for (const SumChunk& chunk : sum_chunks(group, GroupId{7})) {
        CHECK(chunk.begin == next);
        CHECK(chunk.size() > 0);
        next = chunk.end;
        CHECK(owners.insert(chunk.owner).second);
        CHECK(chunk.owner < holders);
      }
      CHECK(next == elements);
    }
}

TEST_CASE("each of n holders of a large group moves 2 (n - 1) / n of its bytes", "[vocabulary]") {
  constexpr std::int64_t kElements = 1'680'000;
  for (const std::int32_t holders : {2, 3, 4, 8, 64}) {
    const auto group = group_of(kElements, holders);
    const auto chunks = sum_chunks(group, GroupId{0});
    REQUIRE(chunks.size() == static_cast<std::size_t>(holders));
    for (std::int32_t h = 0; h < holders; ++h) {
      std::int64_t sent = 0;
      for (const SumChunk& chunk : chunks)
        sent += chunk.owner == h ? (holders - 1) * chunk.size() : chunk.size();
      CHECK(sent == 2 * (holders - 1) * (kElements / holders));
    }
  }
}

TEST_CASE("small groups are added up by one holder each, another one for the next group",
          "[vocabulary]") {
  const auto group = group_of(100, 3);
  for (std::int32_t g = 0; g < 6; ++g) {
    const auto chunks = sum_chunks(group, GroupId{g});
    REQUIRE(chunks.size() == 1);
    CHECK(chunks[0].owner == g % 3);
  }
}

TEST_CASE("a holder sends unless it owns all, and adds what it owns", "[vocabulary]") {
  const auto one = group_of(100, 1), small = group_of(100, 2), large = group_of(10'000, 2);
  const auto role = [](const ParameterGroup& group, std::int32_t device) {
    ParallelPlan plan;
    plan.devices.resize(group.holders.size());
    plan.groups = {group};
    return role_of(plan_sum(plan, GroupId{0}), DeviceId{device});
  };
  CHECK_FALSE(role(one, 0).sends);
  CHECK(role(one, 0).adds == 100);
  CHECK_FALSE(role(small, 0).sends);
  CHECK(role(small, 1).sends);
  CHECK(role(small, 1).adds == 0);
  CHECK(role(large, 0).sends);
  CHECK(role(large, 1).adds == 5000);
  CHECK(role(large, 5).place == -1);
  CHECK_FALSE(role(large, 5).sends);
}

TEST_CASE("standby holders own no chunk, give nothing and take all sums",
          "[vocabulary][property]") {
  for (const std::int64_t elements : {1, 4096, 8192, 100'003})
    for (std::int32_t users = 1; users <= 9; ++users)
      for (std::int32_t standbys = 0; standbys <= 3; ++standbys) {
        CAPTURE(elements, users, standbys);
        const auto alone = group_of(elements, users);
        auto group = group_of(elements, users + standbys);
        group.standbys = standbys;
        const auto expected = sum_chunks(alone, GroupId{5}), chunks = sum_chunks(group, GroupId{5});
        REQUIRE(chunks.size() == expected.size());
        for (std::size_t c = 0; c < chunks.size(); ++c) {
          CHECK(chunks[c].owner == expected[c].owner);
          CHECK(chunks[c].begin == expected[c].begin);
        }
        ParallelPlan plan;
        plan.devices.resize(group.holders.size());
        plan.groups.assign(6, group);
        const auto roles = plan_sum(plan, GroupId{5}).roles;
        for (std::int32_t h = 0; h < users + standbys; ++h) {
          const SumRole& role = roles[static_cast<std::size_t>(h)];
          if (h < users) {
            CHECK(role.sends == role.takes);
          } else {
            CHECK((!role.sends && role.takes && role.adds == 0));
          }
        }
      }
}

TEST_CASE("a device's uses are its own, in their order", "[vocabulary]") {
  ParallelPlan plan;
  plan.devices.resize(3);
  for (const int device : {2, 0, 2, 0, 1})
    plan.stages.push_back({ReplicaId{0}, {}, {DeviceId{device}}});
  ParameterGroup group{"tied", true, 9000, {}, {DeviceId{2}, DeviceId{0}}};
  for (const int stage : {0, 1, 2, 3}) group.uses.push_back({StageId{stage}, {ModuleId{0}, 0}});
  plan.groups = {group};
  const auto sum = plan_sum(plan, GroupId{0});
  REQUIRE(sum.roles.size() == 2);
  CHECK(sum.roles[0].uses == std::vector<std::size_t>{0, 2});
  CHECK(sum.roles[1].uses == std::vector<std::size_t>{1, 3});
}

}  // namespace
}  // namespace troupe
