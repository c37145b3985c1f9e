#include "actors/coordination/left_state.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <set>
#include <vector>

namespace troupe::actors {
namespace {

/// A shard of four rows that the first devices of these nodes hold.
Shard shard(std::int32_t parameter, const std::vector<std::int32_t>& nodes) {
  Shard made{{ParameterId{parameter}, StateKind::value, {{0, 4}}}, {}};
  for (const std::int32_t node : nodes) made.holders.push_back({NodeId{node}, 0});
  return made;
}

TEST_CASE("a shard that nobody holds any more keeps its last holders' names", "[actors]") {
  const StatePlacement before{shard(0, {0, 1}), shard(1, {1}), shard(2, {})};
  const StatePlacement left{shard(0, {0}), shard(1, {}), shard(2, {})};
  CHECK(is_whole({before[0], before[1]}));
  CHECK_FALSE(is_whole(left));
  Orphans orphans;
  add_orphans(before, left, orphans);
  REQUIRE(orphans.size() == 1);  // Of the third one nobody knows.
  CHECK((orphans.at(left[1].key) == std::set<NodeId>{NodeId{1}}));
  // Another loss: what was lost before keeps who held it.
  add_orphans(left, {shard(0, {}), shard(1, {}), shard(2, {})}, orphans);
  REQUIRE(orphans.size() == 2);
  CHECK((orphans.at(left[0].key) == std::set<NodeId>{NodeId{0}}));
  CHECK((orphans.at(left[1].key) == std::set<NodeId>{NodeId{1}}));
}

TEST_CASE("a part is worth a save where it has news and the job does not go back", "[actors]") {
  const StatePlacement whole{shard(0, {0}), shard(1, {2})};
  const StatePlacement part{shard(0, {0}), shard(1, {})};
  const StatePlacement none{shard(0, {}), shard(1, {})};
  for (const bool has_news : {false, true})
    for (const bool goes_back : {false, true}) {
      CHECK(worth_saving(whole, has_news, goes_back) == WorthSaving::whole);
      const bool is_worth = has_news && !goes_back;
      CHECK(worth_saving(part, has_news, goes_back) ==
            (is_worth ? WorthSaving::part : WorthSaving::nothing));
      CHECK(worth_saving(none, has_news, goes_back) == WorthSaving::nothing);
    }
}

}  // namespace
}  // namespace troupe::actors
