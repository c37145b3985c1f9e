// Replicas of a phase that were measured to be slow, have not much room, or stand on nodes of
// different sizes.

#include "tests/torch_catch.hpp"

#include "engine/iteration/phase_replicas.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/iteration/microbatching.hpp"
#include "runtime/vocabulary/random.hpp"
#include "scheduler/layout/place_by_hand.hpp"
#include "scheduler/simulate/memory_bounds.hpp"
#include "tests/engine/measured_events.hpp"
#include "tests/engine/phase_fixture.hpp"
#include "tests/engine/samples_of_lists.hpp"
#include "tests/scheduler/two_layers.hpp"

namespace troupe::engine {
namespace {

using Catch::Approx;
using scheduler::testing::two_layer_sample;

/// Two encoders and two llms of one layer, each on a node of its own, as replicas of one pipeline.
ParallelPlan two_and_two() {
  HandLayout layout;
  for (const int node : {0, 1})
    layout.replicas.push_back({{"vision"}, {{node, 0, {{"vision", {}}}}}});
  for (const int node : {2, 3}) layout.replicas.push_back({{"llm"}, {{node, 0, {{"llm", {}}}}}});
  return scheduler::place_by_hand(scheduler::testing::two_layers(), layout, {4, 1}).value();
}

/// Forty samples of one pipeline, no two steps alike.
DealtBatch forty(std::uint64_t seed) {
  Random random(seed);
  DealtBatch batch{1, 1, {}, {{}}};
  for (std::int32_t i = 0; i < 40; ++i) {
    const auto rows = static_cast<std::int32_t>(64 + 64 * random.below(6));
    batch.samples.push_back(
        two_layer_sample(rows, static_cast<TokenCount>(64 + 64 * random.below(6))));
    batch.pipelines[0].push_back(i);
  }
  return batch;
}

/// Work of a phase on one of its replicas.
double dealt_to(const PredictedIteration& made, ReplicaId replica, std::size_t phase) {
  double work = 0;
  for (const auto unit : all_of(made.iteration.microbatches[replica.index()]))
    work += made.work->phases[phase].work_of(static_cast<std::size_t>(unit));
  return work;
}

TEST_CASE("a replica that is measured to be half as fast gets half as much", "[engine]") {
  const std::size_t slow_phase = GENERATE(std::size_t{0}, std::size_t{1});
  CAPTURE(slow_phase);
  const auto plan = two_and_two();
  const auto known = std::make_shared<const PlanningCosts>(
      PlanningCosts{scheduler::testing::two_layer_costs(2, 0), {}, {}});
  MicrobatchingOptions options;
  options.exchange = "per-phase";
  options.items = "whole";
  options.policy = "hierarchical";
  options.microbatches = 2;
  options.adaptive_correction = true;
  Microbatching microbatching(plan, options, known);
  const auto replicas = replicas_of(plan, ModuleGroupId{slow_phase});
  const StageId slow = plan.at(replicas[0]).stages.front();
  // Nothing is known yet: as the profile says.
  CHECK(microbatching.plan(forty(50)).value().work->phases[slow_phase].shares ==
        std::vector<double>{1, 1});
  for (std::uint64_t step = 0; step < 12; ++step) {
    const auto made = microbatching.plan(forty(step)).value();
    const auto factor = [&](StageId stage) { return stage == slow ? 2.0 : 1.0; };
    microbatching.learn(made.iteration, made.prediction,
                        measured_events(plan, *known, made.iteration, factor), 1e4);
  }
  const auto made = microbatching.plan(forty(60)).value();
  const auto& shares = made.work->phases[slow_phase].shares;
  CHECK(shares[0] == Approx(2).epsilon(0.1));
  CHECK(shares[1] == 1);
  CHECK((made.work->phases[1 - slow_phase].shares == std::vector<double>{1, 1}));
  CHECK(dealt_to(made, replicas[0], slow_phase) ==
        Approx(dealt_to(made, replicas[1], slow_phase) / 2).epsilon(0.15));
}

TEST_CASE("units take as much of a room as bytes say, on the stage where it is most", "[engine]") {
  const auto plan = replicas(2, 1);
  scheduler::SimulationCosts costs;
  // Of 140 bytes state leaves 40, and on the second encoder 20.
  costs.state_bytes = [](StageId stage) { return stage.value == 1 ? 120.0 : 100.0; };
  double power = 1;
  costs.activation_bytes = [&](StageId, const std::vector<std::int32_t>& samples) {
    return 10 * std::pow(static_cast<double>(samples.size()), power);
  };
  const auto bounded = [&](std::int64_t memory) {
    std::vector<PhaseWork> phases{work_of({1, 0, 2}, 2), work_of({1, 1, 1}, 1)};
    phases[0].piece_work = phases[0].piece_rows = {1};
    bound_rooms(plan, costs, scheduler::microbatch_rooms(plan, costs, Bytes{memory}), phases);
    CHECK(phases[1].room_shares.empty());  // The llm's bound is a cap of its own.
    return phases[0];
  };
  using Shares = std::vector<double>;
  const PhaseWork plain = bounded(140);
  CHECK((plain.room_kinds == std::vector<std::size_t>{0, 1}));
  CHECK(plain.room_shares[0] == Shares{0.25, 0, 0.25, 0.25});  // Nothing of a sample without work.
  CHECK(plain.room_share(2, 1) == 0.5);
  // Two together keep 40 bytes instead of 20.
  power = 2;
  CHECK(bounded(140).room_shares[0] == Shares{0.5, 0, 0.5, 0.5});
  // Alike replicas are one kind.
  costs.state_bytes = [](StageId) { return 100.0; };
  CHECK((bounded(140).room_kinds == std::vector<std::size_t>{0, 0}));
  // Of 10 bytes 7.5 are in host memory while others compute, and 2.5 of 20 stay.
  costs.offloaded_bytes = [](StageId, const auto& samples) {
    return 7.5 * static_cast<double>(samples.size());
  };
  power = 1;
  CHECK(bounded(120).room_share(0, 0) == 0.5);
  CHECK(bounded(120).staying_share(0, 0) == 0.125);
  // No room at all: nothing fits.
  CHECK(bounded(90).room_share(0, 0) > 1);
}

TEST_CASE("shares are placed on nodes of different sizes so that fewest bytes leave them",
          "[engine][property]") {
  std::mt19937_64 random(22);
  // On node 0 encoders 0 and 1 with llm 3, on node 1 encoder 2 with llm 4.
  auto plan = replicas(3, 2);
  const std::vector<int> nodes{0, 0, 1, 0, 1}, ranks{0, 1, 0, 2, 1};
  for (std::size_t d = 0; d < nodes.size(); ++d) plan.devices[d] = {NodeId{nodes[d]}, ranks[d]};
  int moved = 0;
  for (int turn = 0; turn < 200; ++turn) {
    PhaseWork work;
    std::vector<LlmCut> cuts;
    std::vector<std::int32_t> wanted, seen;
    for (int r = 0; r < 2; ++r) {
      std::vector<std::int32_t> own;
      for (std::size_t i = 0, size = 1 + random() % 4; i < size; ++i) {
        const auto sample = static_cast<std::int32_t>(work.samples.size());
        own.push_back(sample);
        work.samples.push_back(1.0 + static_cast<double>(random() % 5));
        work.rows.push_back(static_cast<double>(1 + random() % 9));
        wanted.push_back(r);
        seen.push_back(static_cast<std::int32_t>(random() % 2));
        work.apart[sample] = {{NodeId{seen.back()}}, static_cast<double>(random() % 40)};
      }
      cuts.push_back({ReplicaId{3 + r}, {{one_part(own)}, {one_part(own)}}});
    }
    work.shares = {1, 1, 1};
    // Of rows that go to their llm's node, and of content that comes from where it is seen.
    const auto bytes = [&](const std::vector<std::vector<std::int32_t>>& shares) {
      double sum = 0;
      for (std::size_t r = 0; r < shares.size(); ++r)
        for (const auto sample : shares[r]) {
          const auto s = static_cast<std::size_t>(sample);
          if (wanted[s] != nodes[r]) sum += work.rows[s];
          if (seen[s] != nodes[r]) sum += work.apart.at(sample).content;
        }
      return sum;
    };
    std::vector<std::vector<std::int32_t>> shares;
    for (const auto& list : spread_phase(plan, ModuleGroupId{0}, cuts, work, {}))
      shares.push_back(all_of(list));
    const double planned = bytes(shares);
    moved += planned > 0 ? 1 : 0;
    std::sort(shares.begin(), shares.end());
    do {
      REQUIRE(planned <= bytes(shares));
    } while (std::next_permutation(shares.begin(), shares.end()));
  }
  CHECK(moved > 100);
}

/// Two pipelines of an encoder and an llm, where a row keeps 1000 bytes. `shared`: on one node
/// each, not on nodes of their own.
struct Memory {
  ParallelPlan plan;

  explicit Memory(bool shared = false) {
    HandLayout layout;
    for (const int node : {0, 2})
      layout.pipelines.push_back({{shared ? node / 2 : node, 0, {{"vision", {}}}},
                                  {shared ? node / 2 : node + 1, 0, {{"llm", {}}}}});
    plan = scheduler::place_by_hand(scheduler::testing::two_layers(), layout, {shared ? 2 : 4, 1})
               .value();
  }

  /// Pipelines train what they are given in two microbatches. `rows`: that a device has room for;
  /// 0: no bound.
  Result<PredictedIteration> train(const std::string& policy,
                                   const std::vector<std::vector<int>>& pictures, int rows,
                                   std::int32_t max_in_flight = 0) const {
    DealtBatch batch{1, 1, {}, {}};
    for (const auto& own : pictures) {
      auto& samples = batch.pipelines.emplace_back();
      for (const int picture : own) {
        samples.push_back(static_cast<std::int32_t>(batch.samples.size()));
        batch.samples.push_back(two_layer_sample(picture, 2));
      }
    }
    MicrobatchingOptions options;
    options.exchange = "per-phase";
    options.items = "whole";
    options.policy = policy;
    options.microbatches = 2;
    options.max_in_flight = max_in_flight;
    // Half a row is for what is kept besides.
    const Bytes memory{rows > 0 ? 1000 * rows + 500 : 0};
    const auto costs = std::make_shared<const PlanningCosts>(
        PlanningCosts{scheduler::testing::two_layer_costs(0, 1000), {}, memory});
    return Microbatching(plan, options, costs).plan(batch);
  }

  /// The most rows of a microbatch of an encoder.
  int largest(const PredictedIteration& made) const {
    int most = 0;
    for (std::size_t r = 0; r < plan.replicas.size(); ++r)
      for (const Microbatch& microbatch : made.iteration.microbatches[r]) {
        int rows = 0;
        for (const auto unit : all_of({microbatch}))
          if (const auto& media = made.iteration.samples[static_cast<std::size_t>(unit)].media;
              !media.empty())
            rows += media[0].items[0].hidden_rows;
        if (!plan.is_llm(ReplicaId{r})) most = std::max(most, rows);
      }
    return most;
  }
};

TEST_CASE("an exchange keeps what memory promises", "[engine]") {
  const Memory memory;
  // The rounds above, in two pipelines.
  const std::vector<std::vector<int>> pictures{{40, 20, 0, 30, 20, 20}, {0, 0, 0, 15, 15, 0}};
  const auto free = memory.train("in-order", pictures, 0).value();
  CHECK(free.prediction.exchanged);
  CHECK(memory.largest(free) == 65);
  const auto bounded = memory.train("in-order", pictures, 55);
  REQUIRE(bounded.ok());  // Without an exchange one encoder would have 70.
  CHECK(bounded.value().prediction.exchanged);
  CHECK_FALSE(bounded.value().prediction.exchange_refused);
  CHECK(memory.largest(bounded.value()) <= 55);
  const PhaseBalance& vision = bounded.value().prediction.phases[0];
  CHECK(vision.planned < vision.drawn);
  // Also where the job bounds microbatches in flight, and schedules are not bound by memory.
  const auto pinned = memory.train("in-order", pictures, 55, 1);
  REQUIRE(pinned.ok());
  CHECK(pinned.value().prediction.exchanged);
  CHECK(memory.largest(pinned.value()) <= 55);
}

TEST_CASE("an exchange leaves the llm its room on devices that both share", "[engine]") {
  const Memory memory(true);
  // A microbatch of the llm is three samples of two rows, 6 beside what encoders keep. Who has 40
  // of the first round gets 10 of 60 in the next, so that both end at 50; as they were cut it
  // has 50.
  for (int rows = 50; rows < 56; ++rows) {
    CAPTURE(rows);
    const auto made = memory.train("in-order", {{40, 0, 0, 20, 20, 10}, {0, 0, 0, 10, 0, 0}}, rows);
    REQUIRE(made.ok());
    CHECK(made.value().prediction.exchanges(0));
    CHECK(memory.largest(made.value()) <= rows - 6);
  }
}

TEST_CASE("a phase that is even as it was cut is not told to be exchanged", "[engine]") {
  const Memory memory;
  const auto uneven = memory.train("in-order", {{40, 20}, {0, 20}}, 0).value();
  CHECK(uneven.prediction.exchanges(0));
  CHECK_FALSE(uneven.prediction.exchanges(1));  // The llm trains what it was dealt.
  // The step was planned with an exchange, and no phase needed it.
  const auto even = memory.train("in-order", {{20, 20}, {20, 20}}, 0).value();
  CHECK(even.prediction.exchanged);
  CHECK_FALSE(even.prediction.exchanges(0));
}

TEST_CASE("a phase that is even but has no room as it was cut is dealt all the same", "[engine]") {
  const Memory memory;
  // Each encoder would have 80, of which 60 in one round; dealt, 40 in each.
  const std::vector<std::vector<int>> pictures{{40, 20, 20, 0}, {20, 0, 40, 20}};
  CHECK_FALSE(memory.train("in-order", pictures, 0).value().prediction.exchanges(0));
  const auto bounded = memory.train("in-order", pictures, 45);
  REQUIRE(bounded.ok());
  CHECK(bounded.value().prediction.exchanges(0));
  CHECK(memory.largest(bounded.value()) == 40);
}

TEST_CASE("what has no room in few rounds is exchanged in more", "[engine]") {
  const Memory memory;
  // 40 is all that a replica does of one round, so that there is one: of 95, for twice 45.
  const std::vector<std::vector<int>> pictures{{40, 20, 20}, {15}};
  const auto rounds = [&](int room) {
    const auto made = memory.train("hierarchical", pictures, room);
    REQUIRE(made.ok());
    CHECK(made.value().prediction.exchanged);
    if (room > 0) CHECK(memory.largest(made.value()) <= room);
    std::size_t most = 0;
    for (const auto& list : made.value().iteration.microbatches) most = std::max(most, list.size());
    return most;
  };
  CHECK(rounds(0) == 1);
  CHECK(rounds(60) == 1);
  CHECK(rounds(45) == 2);
}

}  // namespace
}  // namespace troupe::engine
