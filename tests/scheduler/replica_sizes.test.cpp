#include "scheduler/recovery/replica_sizes.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <random>

#include "tests/scheduler/example_models.hpp"

namespace troupe::scheduler {
namespace {

using testing::draw;

/// By trying all numbers of replicas.
std::int64_t used_by_trying(const ReplicaSizes& sizes, std::int64_t devices) {
  for (std::int64_t used = devices; used > 0; --used)
    for (std::int64_t count = 1; count <= used; ++count)
      if (count * sizes.least <= used && used <= count * sizes.most) return used;
  return 0;
}

TEST_CASE("as many replicas as there can be use the most devices",
          "[scheduler][recovery][property]") {
  for (std::int64_t least = 1; least <= 7; ++least)
    for (std::int64_t most = least; most <= 9; ++most)
      for (std::int64_t devices = 0; devices <= 40; ++devices) {
        CAPTURE(least, most, devices);
        const ReplicaSizes sizes{least, most};
        CHECK(sizes.used_of(devices) == used_by_trying(sizes, devices));
      }
}

using Counts = std::vector<std::int64_t>;
const ReplicaSizes kAny{1, 9}, kPairs{2, 6}, kSixes{6, 6};

TEST_CASE("devices without work go where most work is per device", "[scheduler][recovery]") {
  // 27 / 4, then 27 / 5 ms, are more than 18 / 4.
  CHECK((deal_devices({{kAny, 4, 27}, {kAny, 4, 18}}, 2) == Counts{2, 0}));
  // Equal, so the first; then 18 / 5 against 18 / 4.
  CHECK((deal_devices({{kAny, 4, 18}, {kPairs, 4, 18}}, 2) == Counts{1, 1}));
  // A group without a whole replica comes first, however little it has to do; then it has 1 / 2.
  CHECK((deal_devices({{kAny, 4, 27}, {kPairs, 1, 1}}, 3) == Counts{2, 1}));
  CHECK((deal_devices({{kAny, 4, 27}, {kPairs, 1, 1}, {kPairs, 1, 1}}, 2) == Counts{0, 1, 1}));
  CHECK((deal_devices({{kAny, 4, 27}, {kAny, 4, 18}}, 0) == Counts{0, 0}));
}

TEST_CASE("devices that a group could not use go to another one", "[scheduler][recovery]") {
  // By work alone some of six would go to the llm, whose six need six more.
  CHECK((deal_devices({{kAny, 6, 27}, {kSixes, 6, 18}}, 6) == Counts{6, 0}));
  // Here it lacks one of twelve.
  CHECK((deal_devices({{kAny, 6, 27}, {kSixes, 11, 18}}, 1) == Counts{0, 1}));
  // Nobody can use it: encoders have nine of nine, or eighteen.
  CHECK((deal_devices({{{9, 9}, 9, 27}, {kSixes, 6, 18}}, 1) == Counts{1, 0}));
}

TEST_CASE("replicas that are longer than any template are cut down", "[scheduler][recovery]") {
  const auto fitted = [](std::vector<RankList> replicas, const ReplicaSizes& sizes) {
    fit_replicas(replicas, sizes, [](const RankList&) { return false; });
    return replicas;
  };
  using Replicas = std::vector<RankList>;
  CHECK((fitted({{0, 1, 2, 3, 4, 5}}, {3, 3}) == Replicas{{0, 1, 2}, {3, 4, 5}}));
  // What is beyond goes where there is room, or is completed from others.
  CHECK((fitted({{0, 1, 2, 3}, {4, 5, 6, 7, 8, 9}}, {4, 5}) ==
         Replicas{{0, 1, 2, 3, 9}, {4, 5, 6, 7, 8}}));
  CHECK((fitted({{0, 1, 2, 3}}, {2, 3}) == Replicas{{0, 1}, {2, 3}}));
  // None is too long: nothing changes.
  CHECK((fitted({{7}, {0, 1, 2}}, {1, 3}) == Replicas{{7}, {0, 1, 2}}));
  Replicas kept{{0, 1, 2, 3}};
  fit_replicas(kept, {1, 3}, [](const RankList& own) { return own.size() == 4; });
  CHECK((kept == Replicas{{0, 1, 2, 3}}));
}

TEST_CASE("replicas of any lengths are cut to lengths of templates, without losing a device",
          "[scheduler][recovery][property]") {
  int changed = 0;
  for (std::uint32_t seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const int least = draw(random, 1, 5);
    const ReplicaSizes sizes{least, draw(random, least, 8)};
    std::vector<RankList> replicas(static_cast<std::size_t>(draw(random, 1, 4)));
    std::int64_t devices = 0;
    for (RankList& own : replicas)
      for (int count = draw(random, least, 20); count > 0; --count) own.push_back(devices++);
    if (sizes.used_of(devices) != devices) continue;
    const auto before = replicas;
    fit_replicas(replicas, sizes, [](const RankList&) { return false; });
    if (replicas != before) ++changed;
    RankList all;
    for (const RankList& own : replicas) {
      all.insert(all.end(), own.begin(), own.end());
      CHECK(std::ssize(own) >= sizes.least);
      CHECK(std::ssize(own) <= sizes.most);
    }
    std::sort(all.begin(), all.end());
    CHECK(std::ssize(all) == devices);
    CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
  }
  CHECK(changed > 100);
}

}  // namespace
}  // namespace troupe::scheduler
