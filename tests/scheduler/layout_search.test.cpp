// What a search simulates of the candidates that it is given, where its budget ends at the first.

#include "scheduler/layout/layout_search.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "scheduler/layout/layout_candidates.hpp"
#include "tests/scheduler/layout_requests.hpp"

namespace troupe::scheduler {
namespace {

using testing::FourLayers;
using testing::model_of;
using testing::OneOfEach;
using testing::text;

/// Candidates of four layers on two devices: one pipeline of two stages, which takes 17 ms, and
/// behind it two of one stage, which take 11.
struct TwoKinds : FourLayers {
  std::vector<LayoutCandidate> candidates;

  TwoKinds() {
    LayoutScorer scorer(request);
    auto made =
        layout_candidates(request, scorer, 1, std::numeric_limits<double>::infinity()).value();
    for (const std::int32_t pipelines : {1, 2})
      candidates.push_back(*std::ranges::find(made, pipelines, &LayoutCandidate::pipelines));
  }

  LayoutSearch searched(double actions_max,
                        double known_ms = std::numeric_limits<double>::infinity()) {
    LayoutSearch search(request, scorer_.emplace(request), actions_max);
    REQUIRE(search.run([&](double) { return Result(candidates); }, true, known_ms).ok());
    return search;
  }

 private:
  std::optional<LayoutScorer> scorer_;
};

std::int32_t pipelines_of(const LayoutSearch& search) {
  return search.results().front().candidate.pipelines();
}

TEST_CASE("a search goes on beyond its budget while estimates promise more") {
  TwoKinds kinds;
  kinds.candidates[1].estimate_ms = 16;  // 17 ms are found: 1.06 times as much.
  const auto search = kinds.searched(1);
  CHECK(search.simulated() == 2);
  CHECK(pipelines_of(search) == 2);
  CHECK(search.best_ms() == 11);
  kinds.candidates[1].estimate_ms = 16.5;
  const auto near = kinds.searched(1);
  CHECK(near.simulated() == 1);
  CHECK(near.best_ms() == 17);
}

TEST_CASE("a search goes on beyond its budget for less than another search has found") {
  TwoKinds kinds;
  kinds.candidates[1].estimate_ms = 10;
  CHECK(kinds.searched(1, 11).simulated() == 2);
  CHECK(kinds.searched(1, 10.4).simulated() == 1);
}

TEST_CASE("a search goes on beyond its budget while nothing fits") {
  TwoKinds kinds;
  std::swap(kinds.candidates[0], kinds.candidates[1]);  // The whole model on each device.
  for (auto& candidate : kinds.candidates) candidate.estimate_ms = 1e6;
  kinds.request.device_memory = Bytes{1'000'000};
  CHECK(pipelines_of(kinds.searched(1)) == 2);
  const auto peak = kinds.searched(1).results().front().step.peak_memory_bytes.front();
  kinds.request.device_memory = Bytes{static_cast<std::int64_t>(peak) - 1};
  const auto search = kinds.searched(1, 1e-3);  // Whatever others have found.
  CHECK(search.found());
  CHECK(pipelines_of(search) == 1);
  CHECK(search.simulated() == 2);
}

TEST_CASE("a search looks beyond its budget at one layout of a kind") {
  TwoKinds kinds;
  for (auto& candidate : kinds.candidates) candidate.estimate_ms = 1;
  for (int more = 0; more < 5; ++more)
    for (const std::size_t kind : {0, 1}) kinds.candidates.push_back(kinds.candidates[kind]);
  CHECK(kinds.searched(1).simulated() == 2);
}

TEST_CASE("a search looks beyond its budget at four kinds") {
  const CostModel model = model_of(testing::text_llm(16), {1});
  AutoLayoutRequest request;
  request.model = &model;
  request.samples = {text(1)};
  request.cluster = {16, 1};
  request.global_batch = request.microbatches = 16;
  request.planned_only = true;
  LayoutScorer scorer(request);
  auto candidates =
      layout_candidates(request, scorer, 1, std::numeric_limits<double>::infinity()).value();
  for (auto& candidate : candidates) candidate.estimate_ms = 1e-3;
  REQUIRE(candidates.size() > 8);
  LayoutSearch search(request, scorer, 1);
  REQUIRE(search.run([&](double) { return Result(candidates); }).ok());
  CHECK(search.simulated() == 5);
}

TEST_CASE("what a search simulates beyond its budget leaves room for moving cuts") {
  TwoKinds kinds;
  kinds.candidates[1].estimate_ms = 1;
  const LayoutScorer scorer(kinds.request);
  const auto actions = [&](const LayoutCandidate& candidate) {
    return scorer.actions(candidate.pipelines(), candidate.groups());
  };
  // For the first, and to try the second again, which has no other cuts.
  const auto search =
      kinds.searched(actions(kinds.candidates[0]) + 2 * actions(kinds.candidates[1]));
  CHECK(search.simulated() == 3);
}

TEST_CASE("a layout that fits by offloading alone is found") {
  // 320 bytes of state; 64 and 68, or of vision 4, while the llm computes.
  OneOfEach one;
  one.request.device_memory = Bytes{400};
  CHECK(auto_layout(one.request).error().code == Errc::infeasible);
  one.request.offload_encoders = true;
  const auto made = auto_layout(one.request);
  REQUIRE(made.ok());
  CHECK(made.value().predicted.peak_memory_bytes[0] <= 400);
  CHECK(made.value().predicted.peak_host_bytes == std::vector<double>{60});
  one.request.device_memory = Bytes{320 + 4 + 67};
  CHECK(auto_layout(one.request).error().code == Errc::infeasible);
}

TEST_CASE("a layout that fits because parameters leave is found") {
  // 320 bytes of state and 64 of vision; then 280 of state, these and 68 of the llm.
  OneOfEach stay, leave(64, true);
  stay.request.device_memory = leave.request.device_memory = Bytes{420};
  CHECK(auto_layout(stay.request).error().code == Errc::infeasible);
  const auto made = auto_layout(leave.request);
  REQUIRE(made.ok());
  CHECK(made.value().predicted.peak_memory_bytes[0] <= 420);
  leave.request.device_memory = Bytes{280 + 64 + 67};
  CHECK(auto_layout(leave.request).error().code == Errc::infeasible);
}

}  // namespace
}  // namespace troupe::scheduler
