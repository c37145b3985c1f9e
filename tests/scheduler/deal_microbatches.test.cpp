#include "scheduler/iteration/deal_microbatches.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <random>
#include <string>

#include "scheduler/iteration/iteration_graph.hpp"
#include "scheduler/iteration/stage_graph.hpp"
#include "scheduler/layout/place_by_hand.hpp"
#include "tests/scheduler/example_models.hpp"
#include "tests/scheduler/random_plans.hpp"

namespace troupe::scheduler {
namespace {

using testing::vision_audio_llm;

/// So many replicas of the encoders and of the llm, a node for each.
ParallelPlan plan_of(int encoders, int llms) {
  HandLayout layout;
  for (int i = 0; i < encoders; ++i)
    layout.replicas.push_back({{"vision", "audio"}, {{i, 0, {{"vision", {}}, {"audio", {}}}}}});
  for (int i = 0; i < llms; ++i)
    layout.replicas.push_back({{"llm"}, {{encoders + i, 0, {{"llm", {}}}}}});
  return place_by_hand(vision_audio_llm(), layout, {encoders + llms, 1}).value();
}

/// Microbatches of one part of one sample each.
MicrobatchList list_of(const std::vector<std::int32_t>& samples) {
  MicrobatchList list;
  for (const auto sample : samples) list.push_back({{{{sample}}}});
  return list;
}

/// The first samples of a replica's microbatches as `0 2 5`.
std::string shown(const MicrobatchList& list) {
  std::string text;
  for (const auto& microbatch : list)
    text += (text.empty() ? "" : " ") + std::to_string(microbatch.parts[0].samples[0]);
  return text;
}

std::vector<std::string> dealt(int encoders, const std::vector<std::vector<std::int32_t>>& cuts,
                               const MicrobatchLoad& load) {
  const auto plan = plan_of(encoders, static_cast<int>(cuts.size()));
  std::vector<ReplicaCut> made;
  for (const auto& samples : cuts) made.push_back({list_of(samples), list_of(samples)});
  std::vector<MicrobatchList> microbatches(plan.replicas.size());
  deal_microbatches(plan, PipelineId{0}, std::move(made), load, microbatches);
  std::vector<std::string> lists;
  for (const auto& list : microbatches) lists.push_back(shown(list));
  return lists;
}

double one(ReplicaId, const Microbatch&) { return 1; }
double by_sample(ReplicaId, const Microbatch& m) { return m.parts[0].samples[0]; }

using Lists = std::vector<std::string>;

TEST_CASE("as many encoder replicas as llm replicas keep their samples apart", "[scheduler]") {
  CHECK(dealt(2, {{0, 1, 2}, {3, 4, 5}}, by_sample) == Lists{"0 1 2", "3 4 5", "0 1 2", "3 4 5"});
}

TEST_CASE("encoders run first what is needed first, in the order of llm replicas", "[scheduler]") {
  // One encoder replica feeds two llm replicas: their first microbatches, then their second ones.
  CHECK(dealt(1, {{0, 1}, {2, 3}}, one) == Lists{"0 2 1 3", "0 1", "2 3"});
  // Three feed two: in turns while all take the same.
  CHECK(dealt(3, {{0, 1, 2}, {3, 4, 5}}, one) == Lists{"0 4", "3 2", "1 5", "0 1 2", "3 4 5"});
  // An llm replica with fewer microbatches is passed over.
  CHECK(dealt(1, {{0}, {1, 2}, {}}, one) == Lists{"0 1 2", "0", "1 2", ""});
}

TEST_CASE("an encoder replica with much to do gets less", "[scheduler]") {
  // 9 to the first; the second has 0, 1, 3 and 6 before each of the others.
  CHECK(dealt(2, {{9, 1, 2, 3, 4}}, by_sample) == Lists{"9", "1 2 3 4", "9 1 2 3 4"});
}

TEST_CASE("a microbatch goes to who has least to do then, the first of equals",
          "[scheduler][property]") {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const int llms = testing::draw(random, 1, 5), others = testing::draw(random, 1, 4);
    const int encoders = others < llms ? others : others + 1;  // Not as many as llm replicas.
    std::vector<std::vector<std::int32_t>> cuts(static_cast<std::size_t>(llms));
    std::int32_t sample = 0;
    for (auto& own : cuts)
      for (int count = testing::draw(random, 0, 4); count > 0; --count) own.push_back(sample++);
    // Few loads that differ, and not the same on every replica, so that many are equal.
    const auto load = [](ReplicaId replica, const Microbatch& microbatch) {
      return (microbatch.parts[0].samples[0] % 3 + 1) * (replica.index() % 2 == 0 ? 1.0 : 2.0);
    };
    std::vector<MicrobatchList> expected(static_cast<std::size_t>(encoders));
    std::vector<double> loads(expected.size());
    for (std::size_t round = 0; round < 4; ++round)
      for (const auto& own : cuts) {
        if (round >= own.size()) continue;
        const auto least =
            static_cast<std::size_t>(std::min_element(loads.begin(), loads.end()) - loads.begin());
        const Microbatch microbatch{{{{own[round]}}}};
        expected[least].push_back(microbatch);
        loads[least] += load(ReplicaId{least}, microbatch);
      }
    const auto lists = dealt(encoders, cuts, load);
    for (std::size_t e = 0; e < expected.size(); ++e) CHECK(lists[e] == shown(expected[e]));
  }
}

TEST_CASE("few encoders run ahead for many llm replicas", "[scheduler]") {
  // Behind an encoder stage stands an llm of one stage, once for each llm replica per encoder
  // replica, rounded up.
  CHECK(stage_depths(plan_of(1, 1)) == std::vector<std::int32_t>{2, 1});
  CHECK(stage_depths(plan_of(1, 4)) == std::vector<std::int32_t>{5, 1, 1, 1, 1});
  CHECK(stage_depths(plan_of(2, 3)) == std::vector<std::int32_t>{3, 3, 1, 1, 1});
  CHECK(stage_depths(plan_of(3, 2)) == std::vector<std::int32_t>{2, 2, 2, 1, 1});
}

/// Depths edge by edge, over all pairs of replicas.
std::vector<std::int32_t> depths_by_edges(const ParallelPlan& plan) {
  std::vector<std::int32_t> depths(plan.stages.size(), 1);
  for (std::size_t p = 0; p < plan.pipelines.size(); ++p) {
    const auto groups = replicas_by_group(plan, PipelineId{p});
    const auto count = [&](StageId stage) {
      return std::ssize(groups[plan.at(plan.at(stage).replica).group.index()]);
    };
    const auto edges = pipeline_edges(plan, PipelineId{p});
    for (auto edge = edges.rbegin(); edge != edges.rend(); ++edge) {
      const auto a = count(edge->from), b = count(edge->to);
      const auto behind = (depths[edge->to.index()] * b + a - 1) / a;
      auto& depth = depths[edge->from.index()];
      depth = std::max(depth, static_cast<std::int32_t>(behind) + 1);
    }
  }
  return depths;
}

TEST_CASE("a stage is as deep as the longest way over any replicas", "[scheduler]") {
  std::size_t apart = 0;  // With several replicas of a group in a pipeline.
  for (std::uint32_t seed = 0; seed < 2000; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto plan = testing::random_plan(random);
    CHECK(stage_depths(plan) == depths_by_edges(plan));
    apart += plan.replicas.size() > plan.pipelines.size() * plan.module_groups.size() ? 1 : 0;
  }
  CHECK(apart > 300);
}

}  // namespace
}  // namespace troupe::scheduler
