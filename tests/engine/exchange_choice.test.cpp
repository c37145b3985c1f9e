// Whether a step is planned with an exchange, and batches that have hardly anything to exchange.

#include "tests/torch_catch.hpp"

#include <catch2/generators/catch_generators.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/iteration/microbatching.hpp"
#include "engine/iteration/phase_exchange.hpp"
#include "scheduler/check/check_plan.hpp"
#include "scheduler/layout/place_by_hand.hpp"
#include "tests/engine/measured_events.hpp"
#include "tests/scheduler/two_encoders.hpp"
#include "tests/scheduler/two_layers.hpp"

namespace troupe::engine {
namespace {

using scheduler::testing::two_layer_sample;

/// Encoders and llms of one layer as replicas of one pipeline, each on a node of its own.
ParallelPlan plan_of(int encoders, int llms) {
  HandLayout layout;
  for (int node = 0; node < encoders; ++node)
    layout.replicas.push_back({{"vision"}, {{node, 0, {{"vision", {}}}}}});
  for (int node = encoders; node < encoders + llms; ++node)
    layout.replicas.push_back({{"llm"}, {{node, 0, {{"llm", {}}}}}});
  return scheduler::place_by_hand(scheduler::testing::two_layers(), layout, {encoders + llms, 1})
      .value();
}

/// Two pipelines, each of an encoder and an llm on nodes of their own.
ParallelPlan two_pipelines() {
  HandLayout layout;
  for (const int node : {0, 2})
    layout.pipelines.push_back({{node, 0, {{"vision", {}}}}, {node + 1, 0, {{"llm", {}}}}});
  return scheduler::place_by_hand(scheduler::testing::two_layers(), layout, {4, 1}).value();
}

MicrobatchingOptions options_of(const std::string& exchange, const std::string& policy) {
  MicrobatchingOptions options;
  options.exchange = exchange;
  options.policy = policy;
  options.microbatches = 2;
  return options;
}

std::shared_ptr<const PlanningCosts> costs() {
  return std::make_shared<const PlanningCosts>(
      PlanningCosts{scheduler::testing::two_layer_costs(0, 1000), {}, {}});
}

TEST_CASE("auto exchanges where measured times say that it takes less", "[engine]") {
  const auto plan = two_pipelines();
  const auto known = costs();
  const auto planner = [&](const std::string& exchange) {
    auto options = options_of(exchange, "in-order");
    options.adaptive_correction = true;
    return Microbatching(plan, options, known);
  };
  auto off = planner("off"), always = planner("per-phase"), open = planner("auto");
  // Each pipeline has four pictures that are alike.
  DealtBatch batch{1, 1, {}, {{0, 1, 2, 3}, {4, 5, 6, 7}}};
  batch.samples.assign(8, two_layer_sample(40, 2));
  CHECK_FALSE(open.plan(batch).value().prediction.exchanged);
  // The first encoder turns out to take four times as long.
  const StageId slow = plan.at(replicas_of(plan, ModuleGroupId{0})[0]).stages.front();
  for (int step = 0; step < 12; ++step) {
    const auto made = off.plan(batch).value();
    const auto events = measured_events(plan, *known, made.iteration,
                                        [&](StageId stage) { return stage == slow ? 4.0 : 1.0; });
    for (Microbatching* each : {&off, &always, &open})
      each->learn(made.iteration, made.prediction, events, 1e4);
  }
  const auto kept = off.plan(batch).value().prediction,
             spread = always.plan(batch).value().prediction,
             chosen = open.plan(batch).value().prediction;
  // By the profile the second encoder has too much then: seven of eight, or so.
  CHECK(kept.profile_step_ms < spread.profile_step_ms);
  CHECK(spread.calibrated_step_ms < kept.calibrated_step_ms);
  CHECK(chosen.exchanged);
  CHECK(chosen.calibrated_step_ms == spread.calibrated_step_ms);
}

// Rows of pictures for two llms, six samples each in two rounds. As they are cut an encoder has 30
// and 39 of a round, the other one 10 and 40. Dealt evenly one would have 46 of the second round;
// 40 for each are all of it but one row, and no deal is found that has room for that.
constexpr int kTightPictures[] = {25, 5, 0, 5, 15, 20, 10, 0, 0, 11, 16, 12};

/// What one pipeline of `plan` trains by this exchange and as many samples for each llm, where
/// `rows` rows have room on a device, of which each keeps 1000 bytes; half a row is for what is
/// kept besides, and 0 rows are no bound.
Result<PredictedIteration> planned_within(const ParallelPlan& plan, std::span<const int> pictures,
                                          std::int64_t microbatches, const std::string& exchange,
                                          int rows) {
  DealtBatch batch{1, 1, {}, {{}}};
  for (const int picture : pictures) {
    batch.pipelines[0].push_back(static_cast<std::int32_t>(batch.samples.size()));
    batch.samples.push_back(two_layer_sample(picture, 2));
  }
  auto options = options_of(exchange, "in-order");
  options.dealing = "count";
  options.microbatches = microbatches;
  const auto known = std::make_shared<const PlanningCosts>(PlanningCosts{
      scheduler::testing::two_layer_costs(0, 1000), {}, Bytes{rows > 0 ? 1000 * rows + 500 : 0}});
  return Microbatching(plan, options, known).plan(batch);
}

TEST_CASE("an exchange that no phase has room for is none, and why is told", "[engine]") {
  const auto plan = plan_of(2, 2);
  const auto planned = [&](const std::string& exchange, int rows) {
    return planned_within(plan, kTightPictures, 2, exchange, rows);
  };
  const auto free = planned("per-phase", 0);
  REQUIRE(free.ok());
  CHECK(free.value().prediction.exchanged);
  CHECK(free.value().prediction.exchanges(0));
  CHECK_FALSE(free.value().prediction.exchange_refused);
  const auto off = planned("off", 40);
  REQUIRE(off.ok());
  CHECK_FALSE(off.value().prediction.exchange_refused);
  for (const std::string exchange : {"per-phase", "auto"}) {
    CAPTURE(exchange);
    const auto bounded = planned(exchange, 40);
    REQUIRE(bounded.ok());
    CHECK((bounded.value().iteration.microbatches == off.value().iteration.microbatches));
    const Prediction& prediction = bounded.value().prediction;
    CHECK_FALSE(prediction.exchanged);
    CHECK_FALSE(prediction.exchanges(0));
    REQUIRE(prediction.exchange_refused);
    CHECK(prediction.exchange_refused->where == "cluster.device_memory_gib");
    CHECK(prediction.exchange_refused->message.find("in round 1") != std::string::npos);
  }
}

TEST_CASE("where whole rounds have no room each llm microbatch has its own", "[engine]") {
  // Two samples for each llm. As they are cut the first encoder works for the first and the last of
  // them, 80 rows, of which 40 at once, and the second for the others, 50. Dealt evenly each has
  // 20, 25 and 20 of a round, 45 in a microbatch that feeds two llms.
  const auto plan = plan_of(2, 4);
  const auto planned = [&](const std::string& exchange, int rows) {
    const int pictures[] = {20, 20, 25, 0, 25, 0, 20, 20};
    return planned_within(plan, pictures, 1, exchange, rows);
  };
  CHECK(planned("off", 42).ok());
  CHECK_FALSE(planned("off", 39).ok());
  for (const int rows : {42, 39}) {
    CAPTURE(rows);
    const auto made = planned("per-phase", rows);
    REQUIRE(made.ok());
    const Prediction& prediction = made.value().prediction;
    CHECK(prediction.exchanges(0));
    CHECK_FALSE(prediction.exchange_refused);
    CHECK(prediction.phases[0].planned < 1.001);
    for (std::size_t encoder = 0; encoder < 2; ++encoder)
      CHECK(made.value().iteration.microbatches[encoder].size() == 3);
    CHECK(scheduler::check(plan, made.value().iteration).empty());
  }
}

TEST_CASE("a phase without room stays as it was cut, and others are exchanged", "[engine]") {
  const auto plan =
      scheduler::testing::two_encoder_plan({"vision", "vision", "audio", "audio", "llm", "llm"});
  // A row takes a millisecond per task, and keeps 1000 bytes.
  const auto known = std::make_shared<const PlanningCosts>(
      PlanningCosts{scheduler::testing::two_encoder_costs(1000), {}, Bytes{40'500}});
  // Sounds are 30 rows of the first llm's first round, for one encoder as they are cut, and 12
  // more.
  const int sounds[] = {15, 15, 0, 2, 2, 2, 2, 0, 0, 2, 0, 2};
  DealtBatch batch{1, 1, {}, {{}}};
  for (std::int32_t i = 0; i < 12; ++i) {
    batch.pipelines[0].push_back(i);
    SampleShape& sample = batch.samples.emplace_back(two_layer_sample(kTightPictures[i], 2));
    if (sounds[i] > 0) sample.media.push_back({ModuleId{1}, {{sounds[i], sounds[i], 1, 0, 0, 0}}});
  }
  auto options = options_of("per-phase", "in-order");
  options.dealing = "count";
  const auto made = Microbatching(plan, options, known).plan(batch);
  REQUIRE(made.ok());
  const Prediction& prediction = made.value().prediction;
  CHECK(prediction.exchanged);
  CHECK_FALSE(prediction.exchanges(0));
  CHECK(prediction.exchanges(1));
  REQUIRE(prediction.exchange_refused);
  REQUIRE(prediction.refused_phases.size() == 1);
  REQUIRE(prediction.refused_phases.contains(0));
  CHECK(prediction.refused_phases.at(0).message == prediction.exchange_refused->message);
  CHECK(prediction.refused_phases.at(0).message.find(" of vision ") != std::string::npos);
}

TEST_CASE("an exchange has room for what its schedule keeps at once", "[engine]") {
  const auto plan = plan_of(2, 4);
  // Two samples for each llm. Dealt evenly the first encoder has 40 rows for the first llm, then 20
  // for the second and 10 for the last; the other one 20 for the second llm, then 40 for the third.
  DealtBatch batch{1, 1, {}, {{}}};
  for (const int rows : {40, 0, 20, 20, 40, 0, 10, 0}) {
    batch.pipelines[0].push_back(static_cast<std::int32_t>(batch.samples.size()));
    batch.samples.push_back(two_layer_sample(rows, 2));
  }
  const auto planned = [&](const std::string& schedule) {
    auto options = options_of("per-phase", "in-order");
    options.dealing = "count";
    options.microbatches = 1;
    options.schedule = schedule;
    // For 50 rows, and half a row is for what is kept besides.
    const auto known = std::make_shared<const PlanningCosts>(
        PlanningCosts{scheduler::testing::two_layer_costs(0, 1000), {}, Bytes{50'500}});
    return Microbatching(plan, options, known).plan(batch);
  };
  // One goes back before the next one comes.
  const auto one_by_one = planned("1f1b");
  REQUIRE(one_by_one.ok());
  CHECK(one_by_one.value().prediction.exchanges(0));
  CHECK_FALSE(one_by_one.value().prediction.exchange_refused);
  // The second llm makes one window of both, of 70 rows.
  const auto phases = planned("three-phase");
  REQUIRE(phases.ok());
  CHECK_FALSE(phases.value().prediction.exchanged);
  REQUIRE(phases.value().prediction.exchange_refused);
  CHECK(phases.value().prediction.exchange_refused->where == "cluster.device_memory_gib");
}

/// Samples with so many equal pictures each; none: of text alone.
DealtBatch batch_of(const std::vector<int>& pictures) {
  DealtBatch batch{1, 1, {}, {{}}};
  for (const int count : pictures) {
    batch.pipelines[0].push_back(static_cast<std::int32_t>(batch.samples.size()));
    SampleShape& sample = batch.samples.emplace_back(two_layer_sample(count > 0 ? 40 : 0, 20));
    for (std::int32_t i = 1; i < count; ++i)
      sample.media[0].items.push_back(sample.media[0].items[0]);
  }
  return batch;
}

TEST_CASE("batches of text alone, and with fewer pictures than encoders, have sound plans",
          "[engine]") {
  const int encoders = GENERATE(2, 3, 4);
  const auto plan = plan_of(encoders, 5 - encoders);
  const auto known = costs();
  for (const auto& batch : {batch_of({0, 0, 0, 0}), batch_of({0, 1, 0, 0, 0}), batch_of({6, 1, 1})})
    for (const std::string schedule : {"1f1b", "split-1f1b", "three-phase"})
      for (const std::string exchange : {"per-phase", "auto"}) {
        INFO(encoders << " " << batch.samples.size() << " " << schedule << " " << exchange);
        auto options = options_of(exchange, "hierarchical");
        options.schedule = schedule;
        const auto made = Microbatching(plan, options, known).plan(batch);
        REQUIRE(made.ok());
        CHECK(scheduler::check(plan, made.value().iteration).empty());
        for (const PhaseBalance& phase : made.value().prediction.phases)
          for (const double imbalance : {phase.drawn, phase.planned, phase.bound})
            CHECK(imbalance >= 1 - 1e-9);
        for (const FarRows& far : made.value().prediction.far_rows)
          for (const double share : {far.planned, far.bound})
            CHECK((share >= 0 && share <= 1 + 1e-9));
      }
}

}  // namespace
}  // namespace troupe::engine
