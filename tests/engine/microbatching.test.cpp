#include "tests/torch_catch.hpp"

#include "engine/iteration/microbatching.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <set>

#include "engine/layout/choose_layout.hpp"
#include "engine/profiling/nominal_profile.hpp"
#include "scheduler/check/check_plan.hpp"
#include "scheduler/iteration/stage_graph.hpp"
#include "scheduler/simulate/llm_cap.hpp"
#include "scheduler/state/standby_holders.hpp"
#include "tests/engine/measured_events.hpp"
#include "tests/engine/samples_of_lists.hpp"
#include "tests/engine/tiny_job.hpp"

namespace troupe::engine {
namespace {

/// The tiny job with computed costs, all samples in pipeline 0 of one that has two stages.
struct Fixture {
  JobSetup setup;
  ParallelPlan plan;
  std::shared_ptr<const PlanningCosts> costs;

  explicit Fixture(Bytes memory = {}, bool trained_encoder = true) {
    auto job = tiny_job();
    job.parallel.layout.pipelines.resize(1);
    job.cluster.nodes = job.cluster.local_nodes = 2;
    for (auto& module : job.modules)
      if (module.kind != ModuleKind::llm) module.freeze = !trained_encoder;
    setup = prepare(job).value();
    plan = make_parallel_plan(setup).value();
    const auto device = scheduler::find_device("H100-80G").value();
    costs = planning_costs(setup, computed_profile(setup, device), memory).value();
  }

  Microbatching make(const std::string& policy, const std::string& schedule,
                     bool correction = false) const {
    MicrobatchingOptions options;
    options.policy = policy;
    options.schedule = schedule;
    options.microbatches = 4;
    options.adaptive_correction = correction;
    return {plan, options, costs};
  }

  /// Samples that differ: large pictures with few words and the other way round.
  DealtBatch batch() const {
    DealtBatch batch{1, 1, {}, {{}}};
    for (std::int32_t i = 0; i < 12; ++i) {
      SampleShape sample;
      sample.id = "s" + std::to_string(i);
      const std::int32_t patches = i % 3 == 2 ? 0 : 64 * (1 + (i * 5) % 7);
      if (patches > 0)
        sample.media.push_back({ModuleId{0}, {{patches, patches, patches / 4, 8, patches / 8, 0}}});
      sample.llm_tokens = patches / 4 + 100 * (1 + (i * 7) % 11);
      sample.trained_tokens = 10;
      batch.samples.push_back(sample);
      batch.pipelines[0].push_back(i);
    }
    return batch;
  }
};

TEST_CASE("every policy and schedule gives a sound plan with every sample on both sides",
          "[engine][property]") {
  const Fixture fixture;
  const auto policy = GENERATE(from_range(balancer::policy_names()));
  const std::string schedule = GENERATE("1f1b", "eager-1f1b", "split-1f1b", "zero-bubble",
                                        "eager-zero-bubble", "gpipe", "dip", "three-phase");
  INFO(policy << " x " << schedule);
  const auto made = fixture.make(policy, schedule).plan(fixture.batch());
  REQUIRE(made.ok());
  const IterationPlan& iteration = made.value().iteration;
  const Prediction& prediction = made.value().prediction;
  CHECK(scheduler::check(fixture.plan, iteration).empty());
  CHECK(all_of(iteration.microbatches[0]).size() == 12);
  CHECK((all_of(iteration.microbatches[0]) == all_of(iteration.microbatches[1])));
  CHECK(prediction.calibrated_step_ms > 0);
  CHECK(prediction.activations.size() == 2);
  std::size_t actions = 0;
  for (const auto& list : iteration.actions) actions += list.size();
  REQUIRE(prediction.events.size() == actions);
  std::int64_t last_ns = 0;
  for (const auto& event : prediction.events) last_ns = std::max(last_ns, event.end_ns);
  CHECK(1e-6 * static_cast<double>(last_ns) ==
        Catch::Approx(prediction.calibrated_step_ms).epsilon(1e-3));
  CHECK(prediction.activations[0] > Bytes{});
}

TEST_CASE("a batch of which samples turn out bad or longer keeps a sound plan of the others",
          "[engine][property]") {
  const Fixture fixture;
  const auto policy = GENERATE(from_range(balancer::policy_names()));
  const std::string schedule = GENERATE("1f1b", "split-1f1b", "eager-zero-bubble");
  INFO(policy << " x " << schedule);
  const auto microbatching = fixture.make(policy, schedule);
  const auto batch = fixture.batch();
  for (const std::uint32_t gone : {0x001U, 0x800U, 0x249U, 0x6DBU, 0xFF7U}) {
    auto planned = microbatching.plan(batch).value();
    const auto before = planned.iteration.microbatches;
    SamplePlaces places;
    std::vector<SampleShape> left;
    for (std::size_t i = 0; i < batch.samples.size(); ++i) {
      const bool is_gone = (gone >> i & 1U) != 0;
      places.push_back(is_gone ? std::nullopt
                               : std::optional(static_cast<std::int32_t>(left.size())));
      if (!is_gone) left.push_back(batch.samples[i]);
    }
    left.front().llm_tokens += 50;
    auto samples = left;
    const auto made = microbatching.amend(std::move(planned), samples, places);
    REQUIRE(made.ok());
    const IterationPlan& iteration = made.value().iteration;
    CHECK(scheduler::check(fixture.plan, iteration).empty());
    CHECK((iteration.samples == left));
    CHECK((all_of(iteration.microbatches[0]) == all_of(iteration.microbatches[1])));
    CHECK(all_of(iteration.microbatches[1]).size() == left.size());
    CHECK(iteration.microbatches[1].size() <= before[1].size());
  }
}

TEST_CASE("inside a pipeline samples are dealt to llm replicas by work, or by count", "[engine]") {
  auto job = tiny_job();
  job.parallel.layout = {};
  job.parallel.layout.replicas = {{{"vision"}, {{0, 0, {{"vision", {}}}}}},
                                  {{"vision"}, {{1, 0, {{"vision", {}}}}}},
                                  {{"llm"}, {{2, 0, {{"llm", {}}}}}},
                                  {{"llm"}, {{3, 0, {{"llm", {}}}}}}};
  const auto plan = make_parallel_plan(prepare(job).value()).value();
  DealtBatch batch{1, 1, {}, {{0, 1, 2, 3, 4, 5}}};
  for (int i = 0; i < 6; ++i) {
    SampleShape sample;
    sample.llm_tokens = i == 0 ? 1000 : 100;
    sample.trained_tokens = 10;
    batch.samples.push_back(sample);
  }
  const auto trained_by_first = [&](const std::string& dealing) {
    MicrobatchingOptions options;
    options.dealing = dealing;
    options.microbatches = 2;
    return all_of(
        Microbatching(plan, options, nullptr).plan(batch).value().iteration.microbatches[2]);
  };
  CHECK((trained_by_first("count") == std::vector<std::int32_t>{0, 1, 2}));
  CHECK((trained_by_first("work") == std::vector<std::int32_t>{0}));
}

TEST_CASE("what is kept on standby is no activation, and cuts no batch otherwise", "[engine]") {
  const Fixture alone;
  Fixture safe;
  safe.plan.devices.push_back({NodeId{2}, 0});
  safe.plan = scheduler::add_standbys(safe.plan, {2, Dtype::fp64}).value();
  const auto expected = alone.make("in-order", "1f1b").plan(alone.batch()).value();
  const auto made = safe.make("in-order", "1f1b").plan(safe.batch()).value();
  CHECK((made.iteration.microbatches == expected.iteration.microbatches));
  REQUIRE(made.prediction.activations.size() == 3);
  for (const std::size_t device : {0, 1})
    CHECK(made.prediction.activations[device] == expected.prediction.activations[device]);
  CHECK(made.prediction.activations[2] == Bytes{});
}

TEST_CASE("what encoders offload is none of their device's memory meanwhile", "[engine]") {
  const Fixture fixture;
  auto costs = std::make_shared<PlanningCosts>(*fixture.costs);
  costs->options.speeds.host = {1, 0};  // A millisecond for each way.
  const auto planned = [&](bool offloads) {
    MicrobatchingOptions options;
    options.schedule = "three-phase";
    options.microbatches = 4;
    options.offload_encoders = offloads;
    return Microbatching(fixture.plan, options, costs).plan(fixture.batch()).value();
  };
  const auto held = planned(false), moved = planned(true);
  CHECK(scheduler::check(fixture.plan, moved.iteration).empty());
  const auto bytes = [](const PredictedIteration& made) {
    return static_cast<double>(made.prediction.activations[0].count());
  };
  CHECK(bytes(moved) < 0.7 * bytes(held));  // One of four microbatches, and outputs of the others.
  CHECK(moved.prediction.profile_step_ms > held.prediction.profile_step_ms);
  CHECK((moved.iteration.max_in_flight == held.iteration.max_in_flight));
}

TEST_CASE("rows wait for one microbatch at most, and are counted", "[engine]") {
  const Fixture fixture;
  const auto batch = fixture.batch();
  const auto made = fixture.make("deferral", "split-1f1b").plan(batch);
  REQUIRE(made.ok());
  const IterationPlan& iteration = made.value().iteration;
  const Prediction& prediction = made.value().prediction;
  const auto &encoder = iteration.microbatches[0], &llm = iteration.microbatches[1];
  TokenCount most = 0;
  for (std::size_t e = 0; e < encoder.size(); ++e) {
    TokenCount held = 0;
    for (const auto& part : encoder[e].parts)
      for (const auto sample : part.samples)
        for (std::size_t l = 0; l < llm.size(); ++l) {
          const auto& own = llm[l].parts[0].samples;
          if (std::find(own.begin(), own.end(), sample) == own.end()) continue;
          const auto& shape = batch.samples[static_cast<std::size_t>(sample)];
          if (shape.media.empty()) continue;
          CHECK(l <= e + 1);
          if (l > e) held += shape.media[0].items[0].output_rows;
        }
    most = std::max(most, held);
  }
  CHECK(most > 0);
  CHECK(prediction.held_rows == most);
  CHECK(prediction.held_bytes == Bytes{most * 16 * 8});  // Width 16 in fp64.
}

/// Backwards of parts that device 0, the encoder's, runs before it turns to the gradients of
/// another part of the same microbatch.
int backwards_ahead_of_siblings(const IterationPlan& iteration) {
  int ahead = 0;
  std::set<std::pair<MicrobatchId, PartId>> came;
  for (const Action& action : iteration.actions[0]) {
    if (action.kind == ActionKind::receive_gradient) {
      const MessageEnd& end = iteration.messages[action.message.index()].source;
      for (const auto& [microbatch, part] : came)
        if (microbatch == end.microbatch && part != end.part) ++ahead;
    }
    if (action.kind == ActionKind::backward) came.insert({action.microbatch, action.part});
  }
  return ahead;
}

TEST_CASE("deferred samples have a backward of their own, where a schedule runs parts apart",
          "[engine]") {
  const auto parts = [](const IterationPlan& iteration) {
    std::size_t most = 0;
    for (const auto& microbatch : iteration.microbatches[0])
      most = std::max(most, microbatch.parts.size());
    return most;
  };
  const Fixture trained, frozen({}, false);
  const auto split = trained.make("deferral", "split-1f1b").plan(trained.batch()).value().iteration;
  CHECK(parts(split) == 2);
  CHECK(backwards_ahead_of_siblings(split) > 0);
  const auto whole = trained.make("deferral", "1f1b").plan(trained.batch()).value().iteration;
  CHECK(parts(whole) == 1);
  // Nothing comes back to a frozen encoder and projector, whose parts would only cost forwards.
  const auto still = frozen.make("deferral", "split-1f1b").plan(frozen.batch()).value().iteration;
  CHECK(parts(still) == 1);
}

/// The llm in two stages, so that as many microbatches must fit on the first of them.
struct TwoDeep : Fixture {
  explicit TwoDeep(Bytes memory = {}) {
    auto job = tiny_job();
    job.parallel.layout.pipelines = {{{0, 0, {{"vision", {}}}},
                                      {1, 0, {{"llm", LayerRange{0, 2}}}},
                                      {2, 0, {{"llm", LayerRange{2, 4}}}}}};
    job.cluster.nodes = job.cluster.local_nodes = 3;
    setup = prepare(job).value();
    plan = make_parallel_plan(setup).value();
    const auto device = scheduler::find_device("H100-80G").value();
    costs = planning_costs(setup, computed_profile(setup, device), memory).value();
  }
};

TEST_CASE("no microbatch of the llm passes what its devices have room for", "[engine]") {
  const TwoDeep open;
  auto batch = open.batch();
  // The longest samples first: in that order they would all come into one microbatch.
  std::sort(batch.pipelines[0].begin(), batch.pipelines[0].end(), [&](auto a, auto b) {
    return batch.samples[static_cast<std::size_t>(a)].llm_tokens >
           batch.samples[static_cast<std::size_t>(b)].llm_tokens;
  });
  const auto costs =
      scheduler::predicted_costs(open.plan, open.costs->model, batch.samples, open.costs->options)
          .value();
  const auto weights = scheduler::sample_workloads(open.costs->model, batch.samples,
                                                   scheduler::module_degrees(open.plan))
                           .value();
  double total = 0;
  for (const auto& weight : weights) total += weight.llm_total_ms;
  const auto largest = [&](const IterationPlan& iteration) {
    double most = 0;
    for (const auto& microbatch : iteration.microbatches[1]) {
      double load = 0;
      for (const auto& part : microbatch.parts)
        for (const auto sample : part.samples)
          load += weights[static_cast<std::size_t>(sample)].llm_total_ms;
      most = std::max(most, load);
    }
    return most;
  };
  const double in_order = largest(open.make("in-order", "1f1b").plan(batch).value().iteration);
  // What a device must have, so that the cap is `cap_ms`; more memory is a higher cap.
  const auto memory_for = [&](double cap_ms) {
    std::int64_t low = 0, high = std::int64_t{1} << 40;
    while (low + 1 < high) {
      const std::int64_t middle = (low + high) / 2;
      const auto cap =
          llm_cap_ms(open.plan, costs, rooms_in_flight(open.plan, costs, Bytes{middle}),
                     ReplicaId{1}, batch.pipelines[0], total);
      (cap.value() < cap_ms ? low : high) = middle;
    }
    return Bytes{high};
  };

  const TwoDeep roomy(memory_for(1.01 * in_order)), tight(memory_for(0.99 * in_order));
  CHECK(roomy.make("in-order", "1f1b").plan(batch).ok());
  const auto refused = tight.make("in-order", "1f1b").plan(batch);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::infeasible);
  for (const std::string policy : {"hierarchical", "deferral", "auto"}) {
    INFO(policy);
    const auto made = tight.make(policy, "1f1b").plan(batch);
    REQUIRE(made.ok());
    CHECK(largest(made.value().iteration) <= 0.99 * in_order * (1 + 1e-6));
  }
}

TEST_CASE("auto is no slower on paper than the order of arrival", "[engine]") {
  const Fixture fixture;
  const std::string schedule = GENERATE("1f1b", "split-1f1b", "eager-zero-bubble");
  const auto plain = fixture.make("in-order", schedule).plan(fixture.batch());
  const auto best = fixture.make("auto", schedule).plan(fixture.batch());
  REQUIRE((plain.ok() && best.ok()));
  CHECK(best.value().prediction.calibrated_step_ms <=
        1.001 * plain.value().prediction.calibrated_step_ms);
  CHECK(best.value().prediction.imbalance_in_order == plain.value().prediction.imbalance_in_order);
}

TEST_CASE("a device without room for a microbatch is an error that says so", "[engine]") {
  const Fixture fixture(Bytes{1000});
  const auto made = fixture.make("hierarchical", "1f1b").plan(fixture.batch());
  REQUIRE_FALSE(made.ok());
  CHECK(made.error().code == Errc::infeasible);
}

TEST_CASE("shapes that take three times as long are learned, with the switch alone", "[engine]") {
  const Fixture fixture;
  const bool correction = GENERATE(true, false);
  auto microbatching = fixture.make("in-order", "1f1b", correction);
  const auto before = microbatching.plan(fixture.batch()).value();
  for (int i = 0; i < 6; ++i)
    microbatching.learn(before.iteration, before.prediction,
                        measured_events(fixture.plan, *fixture.costs, before.iteration,
                                        [](StageId) { return 3.0; }),
                        before.prediction.calibrated_step_ms);
  const auto after = microbatching.plan(fixture.batch()).value();
  // The update at the end of a step keeps its time, so the whole is a little under three times.
  const double ratio = after.prediction.calibrated_step_ms / before.prediction.profile_step_ms;
  CHECK((after.prediction.corrected_shapes > 0) == correction);
  CHECK(ratio > 1.5);
  CHECK(ratio < 3.01);
  // The profile goes on saying what it says.
  CHECK(after.prediction.profile_step_ms == before.prediction.profile_step_ms);
  const auto& planned_by =
      correction ? after.prediction.calibrated_stage_ms : after.prediction.profile_stage_ms;
  CHECK((after.prediction.planned_stage_ms == planned_by));
}

TEST_CASE("predictions follow the speed of stages, and plans do not", "[engine]") {
  const Fixture fixture;
  auto microbatching = fixture.make("auto", "eager-1f1b");
  const auto before = microbatching.plan(fixture.batch()).value();
  CHECK(before.prediction.calibrated_step_ms == before.prediction.profile_step_ms);
  CHECK((before.prediction.calibrated_stage_ms == before.prediction.profile_stage_ms));
  const auto factor = [](StageId stage) { return stage == StageId{0} ? 0.5 : 4.0; };
  for (int i = 0; i < 3; ++i)
    microbatching.learn(before.iteration, before.prediction,
                        measured_events(fixture.plan, *fixture.costs, before.iteration, factor), 1);
  const auto after = microbatching.plan(fixture.batch()).value();

  CHECK((after.iteration.actions == before.iteration.actions));
  CHECK((after.iteration.microbatches == before.iteration.microbatches));
  CHECK(after.prediction.profile_step_ms == before.prediction.calibrated_step_ms);
  CHECK((after.prediction.profile_stage_ms == before.prediction.calibrated_stage_ms));
  CHECK((after.prediction.activations == before.prediction.activations));
  // The events that were told have no update, so that a stage is a little faster than its factor.
  for (const StageId stage : {StageId{0}, StageId{1}}) {
    const double told = after.prediction.calibrated_stage_ms[stage.index()];
    const double profile = after.prediction.profile_stage_ms[stage.index()];
    CHECK(told <= factor(stage) * profile);
    CHECK(told > 0.8 * factor(stage) * profile);
  }
  CHECK(after.prediction.calibrated_step_ms > 1.5 * after.prediction.profile_step_ms);
  std::int64_t last_ns = 0;
  for (const auto& event : after.prediction.events) last_ns = std::max(last_ns, event.end_ns);
  CHECK(1e-6 * static_cast<double>(last_ns) ==
        Catch::Approx(after.prediction.calibrated_step_ms).epsilon(1e-3));
}

}  // namespace
}  // namespace troupe::engine
