#include "tests/torch_catch.hpp"

#include "engine/learning/cost_correction.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "engine/iteration/microbatching.hpp"
#include "runtime/vocabulary/module_rows.hpp"
#include "runtime/vocabulary/random.hpp"
#include "scheduler/layout/place_by_hand.hpp"
#include "scheduler/simulate/simulate_plan.hpp"
#include "tests/engine/measured_events.hpp"
#include "tests/scheduler/two_layers.hpp"

namespace troupe::engine {
namespace {

using Catch::Approx;
using scheduler::testing::two_layer_sample;

constexpr StageId kVision{0}, kLlm{1};
constexpr std::int32_t kSlowRows = 600;   // Of the picture whose kernel is bad.
constexpr TokenCount kSlowTokens = 1000;  // Of the text whose kernel is bad, where the llm is slow.
constexpr double kLaunchMs = 2;

/// An encoder stage and an llm stage; a pass takes a millisecond per row and two per part. A
/// picture of `kSlowRows` rows takes `factor` times as long, whatever stands beside it in its part;
/// where the llm is `slow_module`, a text of `kSlowTokens` does.
struct SlowPicture {
  ParallelPlan plan;
  std::shared_ptr<const PlanningCosts> known;
  double factor = 4;
  StageId slow_module = kVision;

  explicit SlowPicture(StageId slow = kVision) : slow_module(slow) {
    HandLayout layout;
    layout.pipelines.push_back({{0, 0, {{"vision", {}}}}, {1, 0, {{"llm", {}}}}});
    plan = scheduler::place_by_hand(scheduler::testing::two_layers(), layout, {2, 1}).value();
    known = std::make_shared<const PlanningCosts>(
        PlanningCosts{scheduler::testing::two_layer_costs(kLaunchMs, 0), {}, {}});
  }

  static bool slow(const SampleShape& sample) {
    return sample.llm_tokens == kSlowTokens ||
           (!sample.media.empty() && sample.media[0].items[0].hidden_rows == kSlowRows);
  }

  scheduler::SimulationCosts profile(const std::vector<SampleShape>& samples) const {
    return scheduler::predicted_costs(plan, known->model, samples, known->options).value();
  }

  /// What parts really take.
  scheduler::SimulationCosts truth(const std::vector<SampleShape>& samples) const {
    auto costs = profile(samples);
    costs.task_ms = [this, samples, task_ms = costs.task_ms](StageId stage,
                                                             const std::vector<std::int32_t>& part,
                                                             scheduler::TaskKind kind) {
      double ms = task_ms(stage, part, kind);
      for (const auto sample : part)
        if (stage == slow_module && slow(samples[static_cast<std::size_t>(sample)]))
          ms += (factor - 1) * (task_ms(stage, {sample}, kind) - kLaunchMs);
      return ms;
    };
    return costs;
  }

  StageShares shares(const std::vector<SampleShape>& samples) const {
    return {plan, scheduler::SampleSums(known->model, samples).at({}).value(), samples};
  }

  Microbatching make(const std::string& policy, bool correction) const {
    MicrobatchingOptions options;
    options.policy = policy;
    options.schedule = "split-1f1b";
    options.microbatches = 4;
    options.adaptive_correction = correction;
    return {plan, options, known};
  }

  /// Twelve samples, up to `slow` of them slow in that module.
  static DealtBatch batch(std::uint64_t seed, std::uint64_t slow, StageId module = kVision) {
    Random random(seed);
    DealtBatch batch{1, 1, {}, {{}}};
    const auto slow_ones = slow == 0 ? 0 : 1 + random.below(slow);
    for (std::uint64_t i = 0; i < 12; ++i) {
      const auto rows = static_cast<std::int32_t>(64 + 64 * random.below(6));
      const auto tokens = static_cast<TokenCount>(100 + random.below(400));
      const bool is_slow = i < slow_ones;
      batch.samples.push_back(two_layer_sample(is_slow && module == kVision ? kSlowRows : rows,
                                               is_slow && module == kLlm ? kSlowTokens : tokens));
      batch.pipelines[0].push_back(static_cast<std::int32_t>(i));
    }
    return batch;
  }

  /// Lets it plan and measure as many steps.
  void train(Microbatching& microbatching, int steps) const {
    for (int step = 0; step < steps; ++step) {
      const auto made =
          microbatching.plan(batch(static_cast<std::uint64_t>(step), 2, slow_module)).value();
      const auto& iteration = made.iteration;
      microbatching.learn(iteration, made.prediction,
                          measured_events(plan, iteration, truth(iteration.samples).task_ms), 1e4);
    }
  }

  double true_step_ms(const IterationPlan& iteration) const {
    return scheduler::simulate(plan, iteration, truth(iteration.samples), {}).value().step_ms;
  }
};

/// What fifteen steps of parts drawn at random teach.
CostCorrection learned(const SlowPicture& world) {
  CostCorrection correction(world.plan);
  const auto random = world.make("random", false);
  for (std::uint64_t step = 0; step < 15; ++step) {
    auto batch = SlowPicture::batch(step, 2);
    batch.step = static_cast<std::int64_t>(step) + 1;
    const auto iteration = random.plan(batch).value().iteration;
    const auto& samples = iteration.samples;
    correction.learn(iteration, world.profile(samples).task_ms, world.shares(samples),
                     measured_events(world.plan, iteration, world.truth(samples).task_ms), 1e4);
  }
  return correction;
}

TEST_CASE("samples bring to each stage what its own runs take for them", "[engine]") {
  HandLayout layout;  // Two pipelines alike, and one with all on a device.
  layout.pipelines = {{{0, 0, {{"vision", {}}}}, {1, 0, {{"llm", {}}}}},
                      {{2, 0, {{"vision", {}}}}, {3, 0, {{"llm", {}}}}},
                      {{4, 0, {{"vision", {}}, {"llm", {}}}}}};
  const auto plan =
      scheduler::place_by_hand(scheduler::testing::two_layers(), layout, {5, 1}).value();
  const auto model = scheduler::testing::two_layer_costs(kLaunchMs, 0);
  std::vector<SampleShape> samples;
  for (const std::int32_t rows : {64, 128, 64, 0, 128, 64})
    samples.push_back(two_layer_sample(rows, 100 + rows));
  samples.back().llm_tokens = 500;
  const auto costs = scheduler::SampleSums(model, samples).of(plan).value();
  const StageShares shares(plan, costs, samples);
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    for (std::size_t i = 0; i < samples.size(); ++i) {
      auto run = plan.stages[s].runs.begin();
      for (const auto& share : shares.of(StageId{s}, static_cast<std::int32_t>(i))) {
        std::vector<scheduler::AlikeLayers> layers;
        costs.add(*run, {}, layers);
        const auto passes = costs.sample(layers, i);
        CHECK(share.predicted_ms == passes.forward + passes.input_grad + passes.weight_grad);
        CHECK(share.shape.module == static_cast<std::int32_t>(2 * s + run->module.index()));
        CHECK(share.shape.tokens == hidden_rows(plan.model, run->module, samples[i]));
        CHECK(share.llm == (run->module == plan.model.llm()));
        ++run;
      }
      CHECK((run == plan.stages[s].runs.end()));
    }
}

TEST_CASE("a sample weighs what its own shape was measured to take, and others keep their bits",
          "[engine]") {
  const SlowPicture world;
  const auto correction = learned(world);
  const auto batch = SlowPicture::batch(99, 2);
  const auto shares = world.shares(batch.samples);
  for (std::int32_t s = 0; s < 12; ++s) {
    CAPTURE(s);
    const auto weight = correction.corrected({10.1, 20.3}, PipelineId{0}, shares, s);
    if (SlowPicture::slow(batch.samples[static_cast<std::size_t>(s)]))
      CHECK(weight.encoder_ms == Approx(40.4).epsilon(0.05));
    else
      CHECK(weight.encoder_ms == 10.1);
    CHECK(weight.llm_ms == 20.3);  // Nothing of the llm is slow.
  }
  CHECK(correction.corrected_shapes() >= 1);
}

TEST_CASE("a replica is as slow as what its samples take there says", "[engine]") {
  const SlowPicture world;
  const auto correction = learned(world);
  const std::vector<SampleShape> samples{two_layer_sample(kSlowRows, 100),
                                         two_layer_sample(200, 100)};
  const auto shares = world.shares(samples);
  // 600 rows for four times as long, and 200 as the profile says.
  const std::vector<std::int32_t> both{0, 1}, slow{0}, none;
  CHECK(correction.slowdown(ReplicaId{0}, shares, both) ==
        Approx((4 * 600 + 200) / 800.0).epsilon(0.05));
  CHECK(correction.slowdown(ReplicaId{0}, shares, slow) == Approx(4).epsilon(0.05));
  CHECK(correction.slowdown(ReplicaId{1}, shares, both) == 1);  // The llm's bits stay.
  CHECK(correction.slowdown(ReplicaId{0}, shares, none) == 1);
}

TEST_CASE("a part that was never measured takes what its samples say", "[engine]") {
  const SlowPicture world;
  const auto correction = learned(world);
  // A slow picture and three others; all pictures of a step in one part.
  const auto samples = SlowPicture::batch(7, 1).samples;
  const auto shares = std::make_shared<const StageShares>(world.shares(samples));
  const auto corrected = correction.corrected(world.profile(samples).task_ms, shares);
  const auto truth = world.truth(samples).task_ms;
  const std::vector<std::vector<std::int32_t>> parts{
      {0}, {0, 1, 2, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {1, 2, 3}};
  for (const auto& part : parts)
    for (const auto stage : {kVision, kLlm})
      for (const auto kind : {scheduler::TaskKind::forward, scheduler::TaskKind::backward}) {
        CAPTURE(part.size(), stage.value);
        CHECK(corrected(stage, part, kind) == Approx(truth(stage, part, kind)).epsilon(0.08));
      }
}

TEST_CASE("policies that weigh work plan around one slow shape, and its steps get faster",
          "[engine][property]") {
  const auto [policy, module, steps] = GENERATE(
      table<std::string, StageId, int>({{"karmarkar-karp", kVision, 20},
                                        {"dflop", kVision, 20},
                                        {"hierarchical", kVision, 20},
                                        {"deferral", kVision, 20},
                                        {"dflop-search", kVision, 20},
                                        {"deferral-chain", kVision, 20},
                                        {"deferral-exchange", kVision, 20},
                                        {"balanced-chain", kVision, 20},
                                        // Its small parts at both ends hold the same shapes again
                                        // and again: they are told apart later.
                                        {"tapered", kVision, 30},
                                        {"auto", kVision, 20},
                                        {"llm-only", kLlm, 20},
                                        {"dflop", kLlm, 20},
                                        {"deferral", kLlm, 20}}));
  CAPTURE(policy, module.value);
  const SlowPicture world(module);
  auto with = world.make(policy, true);
  const auto without = world.make(policy, false);
  CHECK((with.plan(SlowPicture::batch(5, 2, module)).value().iteration ==
         without.plan(SlowPicture::batch(5, 2, module)).value().iteration));  // Nothing learned,
                                                                              // same bits.
  world.train(with, steps);
  double corrected_ms = 0, plain_ms = 0;
  int changed = 0;
  for (std::uint64_t seed = 100; seed < 120; ++seed) {
    const auto batch = SlowPicture::batch(seed, 2, module);
    const auto corrected = with.plan(batch).value().iteration;
    const auto plain = without.plan(batch).value().iteration;
    corrected_ms += world.true_step_ms(corrected);
    plain_ms += world.true_step_ms(plain);
    changed += corrected.microbatches != plain.microbatches;
    // The same batch without the slow shape: the plan is the same.
    const auto others = SlowPicture::batch(seed, 0);
    CHECK((with.plan(others).value().iteration.microbatches ==
           without.plan(others).value().iteration.microbatches));
  }
  CHECK(changed > 0);
  CHECK(corrected_ms < plain_ms);
}

TEST_CASE("a planner that goes on plans and learns as if it had never stopped", "[engine]") {
  const SlowPicture world;
  auto whole = world.make("deferral", true);
  world.train(whole, 13);  // In the middle of a window of watching.
  auto resumed = world.make("deferral", true);
  resumed.restore(whole.learned());
  CHECK((resumed.learned() == whole.learned()));
  CHECK(whole.learned().benefit_steps == 13);
  const auto plain = world.make("deferral", false);
  int changed = 0;
  for (std::uint64_t seed = 100; seed < 110; ++seed) {
    const auto batch = SlowPicture::batch(seed, 2);
    const auto plan = resumed.plan(batch).value();
    CHECK((plan.iteration == whole.plan(batch).value().iteration));
    CHECK(plan.prediction.calibrated_step_ms ==
          whole.plan(batch).value().prediction.calibrated_step_ms);
    changed += plan.iteration.microbatches != plain.plan(batch).value().iteration.microbatches;
  }
  CHECK(changed > 0);
  for (Microbatching* each : {&whole, &resumed}) world.train(*each, 9);
  // Each measured its own cost of watching; all else is the same.
  CHECK((resumed.learned().samples == whole.learned().samples));
  CHECK((resumed.learned().parts == whole.learned().parts));
  CHECK(resumed.learned().benefit_steps == whole.learned().benefit_steps);
}

}  // namespace
}  // namespace troupe::engine
