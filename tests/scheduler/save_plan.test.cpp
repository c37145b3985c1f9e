#include "scheduler/state/save_plan.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <random>
#include <set>

#include "scheduler/state/state_moves.hpp"

namespace troupe::scheduler {
namespace {

DeviceSlot slot(std::int32_t node, std::int32_t device = 0) { return {NodeId{node}, device}; }

Shard value(std::int32_t parameter, std::int64_t rows, std::vector<DeviceSlot> holders) {
  return {{ParameterId{parameter}, StateKind::value, {{0, rows}}}, std::move(holders)};
}

TEST_CASE("each shard is written once, the largest first by who has least", "[scheduler]") {
  // 8 to node 0, 6 to node 1; then 5 to node 1 (6 < 8), 4 to node 0 (8 < 11).
  const StatePlacement placement{value(0, 4, {slot(0), slot(1)}), value(1, 5, {slot(0), slot(1)}),
                                 value(2, 6, {slot(0), slot(1)}), value(3, 8, {slot(0), slot(1)})};
  const auto writers = plan_save(placement, Dtype::fp32);
  REQUIRE(writers.size() == 2);
  CHECK((writers.at(slot(0)) == std::vector{placement[0].key, placement[3].key}));
  CHECK((writers.at(slot(1)) == std::vector{placement[1].key, placement[2].key}));
}

TEST_CASE("a shard that nobody holds is written by nobody", "[scheduler]") {
  const StatePlacement placement{value(0, 4, {slot(0)}), value(1, 5, {}), value(2, 6, {slot(1)})};
  const auto writers = plan_save(placement, Dtype::fp32);
  REQUIRE(writers.size() == 2);
  CHECK((writers.at(slot(0)) == std::vector{placement[0].key}));
  CHECK((writers.at(slot(1)) == std::vector{placement[2].key}));
}

TEST_CASE("holders alone write, all of it, evenly", "[scheduler][property]") {
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    StatePlacement placement;
    std::int64_t all = 0, largest = 0;
    for (std::int32_t p = 0; p < 60; ++p) {
      const auto rows = static_cast<std::int64_t>(1 + random() % 500);
      placement.push_back(value(p, rows, {slot(0), slot(1), slot(1, 1), slot(2)}));
      all += 4 * rows;
      largest = std::max(largest, 4 * rows);
    }
    placement.push_back(value(60, 9, {slot(7)}));
    std::set<ShardKey> seen;
    for (const auto& [device, keys] : plan_save(placement, Dtype::fp32)) {
      CHECK(std::is_sorted(keys.begin(), keys.end()));
      std::int64_t bytes = 0;
      for (const ShardKey& key : keys) {
        CHECK(seen.insert(key).second);
        const auto& holders = placement[key.parameter.index()].holders;
        CHECK(std::count(holders.begin(), holders.end(), device) == 1);
        bytes += 4 * elements_of(key.box);
      }
      CHECK(bytes <= all / 4 + largest);
    }
    CHECK(seen.size() == placement.size());
  }
}

}  // namespace
}  // namespace troupe::scheduler
