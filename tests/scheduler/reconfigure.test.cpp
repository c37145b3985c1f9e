#include "scheduler/recovery/reconfigure.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <random>
#include <set>
#include <utility>

namespace troupe::scheduler {
namespace {

using Catch::Matchers::ContainsSubstring;
using Pipelines = std::vector<RankList>;

RankList run(std::int64_t first, std::int64_t last) {
  RankList ranks;
  for (auto rank = first; rank <= last; ++rank) ranks.push_back(rank);
  return ranks;
}

// The published start: [0,1] [2-4] [5-8] [9-13], minimum 2.
ReconfigureRequest losing(RankList lost, RankList joined = {}) {
  return {
      {run(0, 1), run(2, 4), run(5, 8), run(9, 13)}, 2, 1, 0, std::move(lost), std::move(joined)};
}

Pipelines after(const ReconfigureRequest& request) {
  auto result = reconfigure(request);
  REQUIRE(result.ok());
  return std::move(result).value();
}

TEST_CASE("the published reconfigurations are reproduced", "[scheduler]") {
  CHECK(after(losing({2})) == Pipelines{run(0, 1), {3, 4}, run(5, 8), run(9, 13)});
  CHECK(after(losing({6, 8})) == Pipelines{{0, 1}, {5, 7}, run(2, 4), run(9, 13)});
  CHECK(after(losing({1})) == Pipelines{{0, 13}, run(2, 4), run(5, 8), run(9, 12)});
  // [0] takes 13; then [5-8] and [9-12] are equally long and [2] takes from the last.
  CHECK(after(losing({1, 3, 4})) == Pipelines{{0, 13}, {2, 12}, run(9, 11), run(5, 8)});
  // [12,13] cannot give, so the only short one absorbs it.
  CHECK(after(losing(run(1, 11))) == Pipelines{{0, 12, 13}});
}

TEST_CASE("with two GPUs per node whole nodes are borrowed", "[scheduler]") {
  ReconfigureRequest request{{run(0, 3), run(4, 9), run(10, 17), run(18, 27)}, 4, 2, 0, {6, 7}, {}};
  CHECK(after(request) == Pipelines{run(0, 3), {4, 5, 8, 9}, run(10, 17), run(18, 27)});
  request.lost = {2, 3};
  CHECK(after(request) == Pipelines{{0, 1, 26, 27}, run(4, 9), run(10, 17), run(18, 25)});
}

TEST_CASE("short pipelines join in order before a healthy one is absorbed", "[scheduler]") {
  // Minimum 3, everyone at the minimum: [0,1] and [3] join; nobody else changes.
  ReconfigureRequest request{{run(0, 2), run(3, 5), run(6, 8)}, 3, 1, 0, {2, 4, 5}, {}};
  CHECK(after(request) == Pipelines{{0, 1, 3}, run(6, 8)});
  request.lost = {2};  // Alone, [0,1] absorbs the first healthy one.
  CHECK(after(request) == Pipelines{run(6, 8), {0, 1, 3, 4, 5}});
}

TEST_CASE("joined nodes form new pipelines and the rest goes to the shortest", "[scheduler]") {
  CHECK(after(losing({}, {20, 21, 22})) ==
        Pipelines{{20, 21}, {0, 1, 22}, run(2, 4), run(5, 8), run(9, 13)});
  CHECK(after(losing({}, {14})) == Pipelines{{0, 1, 14}, run(2, 4), run(5, 8), run(9, 13)});
  // A node that was lost may come back under its rank.
  CHECK(after(losing({2}, {2})) == Pipelines{{3, 4}, {0, 1, 2}, run(5, 8), run(9, 13)});
  // Survivors below the minimum are completed first.
  ReconfigureRequest request{{run(0, 2)}, 3, 1, 0, {1, 2}, {5, 6}};
  CHECK(after(request) == Pipelines{{0, 5, 6}});
}

TEST_CASE("merging does not give up replicas that the ranks suffice for", "[scheduler]") {
  // Minimum 3, f = 1: [0,1] [3,4] [6,7]. Merged in order they are [0,1,3,4] and [6,7] short, which
  // absorbs the other: one pipeline of six ranks, where two of three are possible.
  const ReconfigureRequest request{{run(0, 2), run(3, 5), run(6, 8)}, 3, 1, 1, {2, 5, 8}, {}};
  const auto pipelines = after(request);
  CHECK(pipelines.size() == 2);
  CHECK(pipelines[0].size() == 3);
}

TEST_CASE("too few ranks for f + 1 replicas are refused", "[scheduler][errors]") {
  auto request = losing(run(1, 11));
  request.fault_tolerance = 1;  // Three ranks, four are needed.
  const auto result = reconfigure(request);
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().code == Errc::infeasible);
  CHECK_THAT(result.error().message, ContainsSubstring("3 ranks remain"));
  CHECK_THAT(result.error().fix, ContainsSubstring("1 more nodes, or fault_tolerance = 0"));
  CHECK_FALSE(reconfigure(losing(run(0, 13))).ok());
}

TEST_CASE("contradictory ranks are refused", "[scheduler][errors]") {
  CHECK(reconfigure(losing({77})).error().where == "lost");
  CHECK(reconfigure(losing({}, {3})).error().where == "joined");
  CHECK(reconfigure(losing({}, {30, 30})).error().where == "joined");
  CHECK(reconfigure({{{0, 1}, {1, 2}}, 1, 1, 0, {}, {}}).error().where == "pipelines[1]");
  CHECK(reconfigure({{{0, 1}}, 3, 2, 0, {}, {}}).error().where == "minimum");
  CHECK(reconfigure({{{0, 1}}, 2, 0, 0, {}, {}}).error().where == "ranks_per_node");
  CHECK(reconfigure({{{-1}}, 1, 1, 0, {}, {}}).error().where == "pipelines[0]");
  const auto half = reconfigure({{{0, 1, 2, 3}}, 2, 2, 0, {2}, {}});
  REQUIRE_FALSE(half.ok());
  CHECK_THAT(half.error().fix, ContainsSubstring("ranks 2 to 3"));
}

// The published rules once more, written down as they stand, for losses alone. False where they
// would leave fewer than f + 1 pipelines: there ours go on.
bool published(const ReconfigureRequest& request, Pipelines& lists) {
  const std::set<std::int64_t> lost(request.lost.begin(), request.lost.end());
  const auto minimum = static_cast<std::size_t>(request.minimum);
  const auto node = static_cast<std::size_t>(request.ranks_per_node);
  lists = request.pipelines;
  for (auto& list : lists)
    std::erase_if(list, [&](std::int64_t rank) { return lost.contains(rank); });
  std::erase_if(lists, [](const RankList& list) { return list.empty(); });
  Pipelines healthy, shorts;
  for (std::size_t p = 0; p < lists.size(); ++p)
    while (lists[p].size() < minimum) {
      std::size_t largest = 0;
      for (std::size_t q = 0; q < lists.size(); ++q)
        if (lists[q].size() >= lists[largest].size()) largest = q;
      if (lists[largest].size() < minimum + node) break;
      for (std::size_t i = 0; i < node; ++i) {
        lists[p].push_back(lists[largest].back());
        lists[largest].pop_back();
      }
    }
  for (const auto& list : lists) (list.size() < minimum ? shorts : healthy).push_back(list);
  RankList open;
  for (const auto& list : shorts) {
    open.insert(open.end(), list.begin(), list.end());
    if (open.size() < minimum) continue;
    healthy.push_back(std::exchange(open, {}));
  }
  if (!open.empty() && healthy.empty()) return false;
  // The first healthy one, not one that was just merged, unless there is no other.
  if (!open.empty()) healthy.front().insert(healthy.front().end(), open.begin(), open.end());
  lists = healthy;
  for (auto& list : lists) std::sort(list.begin(), list.end());
  std::sort(lists.begin(), lists.end(), [](const RankList& a, const RankList& b) {
    return std::pair(a.size(), a.front()) < std::pair(b.size(), b.front());
  });
  return static_cast<std::int64_t>(lists.size()) > request.fault_tolerance;
}

TEST_CASE("losses follow the published rules on random pipelines", "[scheduler][property]") {
  int followed = 0;
  for (unsigned seed = 0; seed < 5000; ++seed) {
    std::mt19937 random(seed);
    ReconfigureRequest request;
    request.ranks_per_node = 1 + random() % 3;
    request.minimum = request.ranks_per_node * (1 + random() % 4);
    request.fault_tolerance = random() % 2;
    std::int64_t next = 0;
    for (unsigned p = 0, count = 1 + random() % 6; p < count; ++p) {
      auto& pipeline = request.pipelines.emplace_back();
      const auto nodes = request.minimum / request.ranks_per_node + random() % 3;
      for (unsigned i = 0; i < nodes; ++i) {
        const bool lost = random() % 5 < seed % 5;
        for (std::int64_t r = 0; r < request.ranks_per_node; ++r) {
          if (lost) request.lost.push_back(next);
          pipeline.push_back(next++);
        }
      }
    }
    Pipelines expected;
    if (!published(request, expected)) continue;
    CAPTURE(seed);
    REQUIRE(after(request) == expected);
    ++followed;
  }
  CHECK(followed > 3000);
}

TEST_CASE("a hundred thousand nodes are reconfigured", "[scheduler]") {
  // 50,000 pipelines of two; every first node of the first half is lost, as many and one more join.
  // Nobody can give, so the 25,000 survivors merge in pairs; 25,001 new ones pair up, one is left.
  ReconfigureRequest request;
  request.minimum = 2;
  for (std::int64_t p = 0; p < 50'000; ++p) {
    request.pipelines.push_back({2 * p, 2 * p + 1});
    if (p < 25'000) request.lost.push_back(2 * p);
    if (p <= 25'000) request.joined.push_back(100'000 + p);
  }
  const auto pipelines = after(request);
  CHECK(pipelines.size() == 12'500 + 25'000 + 12'500);
  CHECK(pipelines.back().size() == 3);
  // One pipeline that takes all that join, since they are too few for a second.
  ReconfigureRequest one{{run(0, 99'999)}, 100'000, 1, 0, {}, run(100'000, 199'998)};
  CHECK(after(one).front().size() == 199'999);
}

TEST_CASE("no rank is lost or duplicated, none is short, replicas suffice",
          "[scheduler][property]") {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    ReconfigureRequest request;
    request.ranks_per_node = 1 + random() % 3;
    request.minimum = request.ranks_per_node * (1 + random() % 3);
    request.fault_tolerance = random() % 3;
    std::int64_t next = 0;
    std::set<std::int64_t> expected;
    const auto node = [&](RankList& ranks) {
      for (std::int64_t i = 0; i < request.ranks_per_node; ++i) ranks.push_back(next++);
    };
    for (unsigned p = 0, count = 1 + random() % 5; p < count; ++p) {
      auto& pipeline = request.pipelines.emplace_back();
      const auto nodes = request.minimum / request.ranks_per_node + random() % 3;
      for (unsigned i = 0; i < nodes; ++i) {
        node(pipeline);
        if (random() % 3 == 0)
          request.lost.insert(request.lost.end(), pipeline.end() - request.ranks_per_node,
                              pipeline.end());
      }
      expected.insert(pipeline.begin(), pipeline.end());
    }
    for (const auto rank : request.lost) expected.erase(rank);
    for (unsigned i = 0, count = random() % 5; i < count; ++i) node(request.joined);
    expected.insert(request.joined.begin(), request.joined.end());
    CAPTURE(seed);
    const auto result = reconfigure(request);
    const auto needed = (request.fault_tolerance + 1) * request.minimum;
    REQUIRE(result.ok() == (static_cast<std::int64_t>(expected.size()) >= needed));
    if (!result.ok()) continue;
    std::set<std::int64_t> seen;
    for (const auto& pipeline : result.value()) {
      REQUIRE(static_cast<std::int64_t>(pipeline.size()) >= request.minimum);
      REQUIRE(pipeline.size() % static_cast<std::size_t>(request.ranks_per_node) == 0);
      REQUIRE(std::is_sorted(pipeline.begin(), pipeline.end()));
      for (const auto rank : pipeline) REQUIRE(seen.insert(rank).second);
    }
    REQUIRE(seen == expected);
    REQUIRE(static_cast<std::int64_t>(result.value().size()) > request.fault_tolerance);
  }
}

}  // namespace
}  // namespace troupe::scheduler
