// Plans whose encoders share a batch out among all their replicas (`balancer.exchange`).

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <map>
#include <set>
#include <utility>

#include "engine/iteration/microbatching.hpp"
#include "engine/iteration/pipeline_shares.hpp"
#include "engine/iteration/pipeline_speeds.hpp"
#include "engine/layout/choose_layout.hpp"
#include "engine/profiling/nominal_profile.hpp"
#include "scheduler/check/check_plan.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/torch_catch.hpp"

namespace troupe::engine {
namespace {

enum class Layout { pipelines, alike, three_to_two, two_to_three, colocated };

/// Vision encoders and llms in several layouts, with computed costs.
struct Fixture {
  JobSetup setup;
  ParallelPlan plan;
  std::shared_ptr<const PlanningCosts> costs;

  /// `slower`: than an H100, so many times; by enough, work takes longer than launching it.
  explicit Fixture(Layout layout, double slower = 1) {
    auto job = tiny_job();
    if (layout == Layout::alike) {
      for (int p = 0; p < 2; ++p)
        job.parallel.layout.pipelines[static_cast<std::size_t>(p)] = {
            {2 * p, 0, {{"vision", {}}}}, {2 * p + 1, 0, {{"llm", {}}}}};
    } else if (layout != Layout::pipelines) {
      job.parallel.layout = {};
      const int encoders = layout == Layout::three_to_two ? 3 : 2;
      const int llms = layout == Layout::two_to_three ? 3 : 2;
      const bool shares = layout == Layout::colocated;
      job.cluster.nodes = job.cluster.local_nodes = shares ? 2 : 5;
      for (int e = 0; e < encoders; ++e)
        job.parallel.layout.replicas.push_back({{"vision"}, {{e, 0, {{"vision", {}}}}}});
      for (int l = 0; l < llms; ++l)
        job.parallel.layout.replicas.push_back(
            {{"llm"}, {{shares ? l : encoders + l, 0, {{"llm", {}}}}}});
    }
    setup = prepare(job).value();
    plan = make_parallel_plan(setup).value();
    auto device = scheduler::find_device("H100-80G").value();
    for (double* speed : {&device.bf16_teraflops, &device.fp32_teraflops, &device.fp64_teraflops,
                          &device.memory_gigabytes_per_s})
      *speed /= slower;
    costs = planning_costs(setup, computed_profile(setup, device), {}).value();
  }

  Microbatching make(const std::string& exchange, const std::string& policy = "hierarchical",
                     const std::string& schedule = "1f1b", std::int32_t max_in_flight = 0,
                     const std::string& items = "whole", std::int64_t microbatches = 3) const {
    MicrobatchingOptions options;
    options.exchange = exchange;
    options.items = items;
    options.policy = policy;
    options.schedule = schedule;
    options.microbatches = microbatches;
    options.max_in_flight = max_in_flight;
    return {plan, options, costs};
  }

  Result<PredictedIteration> train(const Microbatching& microbatching,
                                   std::vector<SampleShape> batch = samples()) const {
    const PipelineSpeeds speeds(plan.pipelines.size());
    auto dealt = microbatching.deal({1, 1, std::move(batch)}, speeds);
    return microbatching.plan(dealt.value());
  }

  /// Twenty samples: some with large pictures, some with text alone.
  static std::vector<SampleShape> samples() {
    std::vector<SampleShape> made;
    for (std::int32_t i = 0; i < 20; ++i) {
      SampleShape sample;
      sample.id = "s" + std::to_string(i);
      const std::int32_t patches = i % 4 == 2 ? 0 : 64 * (1 + (i * i * 7) % 23);
      if (patches > 0)
        sample.media.push_back({ModuleId{0}, {{patches, patches, patches / 4, 8, patches / 8, 0}}});
      sample.llm_tokens = patches / 4 + 100 * (1 + (i * 7) % 11);
      sample.trained_tokens = 10;
      made.push_back(sample);
    }
    return made;
  }

  /// The same, but that one has more to see than all the others.
  static std::vector<SampleShape> samples_with_a_giant() {
    auto made = samples();
    for (std::int32_t i = 1; i <= 40; ++i) {
      made[3].media[0].items.push_back({1024, 1024, 256, 32, 32, i});
      made[3].llm_tokens += 256;
    }
    return made;
  }

  /// Each with so many equal pictures.
  static std::vector<SampleShape> pictures(const std::vector<int>& counts) {
    std::vector<SampleShape> made;
    for (const int count : counts) {
      SampleShape& sample = made.emplace_back();
      sample.id = "p" + std::to_string(made.size());
      sample.media.push_back({ModuleId{0}, {}});
      for (std::int32_t i = 0; i < count; ++i)
        sample.media[0].items.push_back({1024, 1024, 256, 32, 32, i});
      sample.llm_tokens = 256 * count + 20;
      sample.trained_tokens = 10;
    }
    return made;
  }

  /// Per encoder replica: the llm replicas that rows of its pictures go to.
  std::map<ReplicaId, std::set<ReplicaId>> fed(const IterationPlan& iteration) const {
    std::map<ReplicaId, std::set<ReplicaId>> found;
    for (const Message& message : iteration.messages) {
      const ReplicaId from = plan.at(message.source.stage).replica;
      const ReplicaId to = plan.at(message.destination.stage).replica;
      if (!plan.is_llm(from) && plan.is_llm(to)) found[from].insert(to);
    }
    return found;
  }
};

/// Microbatches of the last llm replica.
std::size_t rounds(const PredictedIteration& made) {
  return made.iteration.microbatches.back().size();
}

TEST_CASE("plans with an exchange are sound, whatever the layout, policy and schedule",
          "[engine][property]") {
  const auto layout =
      GENERATE(Layout::pipelines, Layout::three_to_two, Layout::two_to_three, Layout::colocated);
  const Fixture fixture(layout);
  for (const std::string schedule :
       {"1f1b", "split-1f1b", "zero-bubble", "eager-zero-bubble", "gpipe", "dip", "three-phase"})
    for (const auto& policy : balancer::policy_names()) {
      INFO(static_cast<int>(layout) << " " << policy << " x " << schedule);
      const auto made = fixture.train(fixture.make("per-phase", policy, schedule));
      REQUIRE(made.ok());
      const IterationPlan& iteration = made.value().iteration;
      CHECK(scheduler::check(fixture.plan, iteration).empty());
      std::map<std::size_t, std::multiset<std::int32_t>> of_group;
      for (std::size_t r = 0; r < fixture.plan.replicas.size(); ++r)
        for (const auto& microbatch : iteration.microbatches[r])
          for (const auto& part : microbatch.parts)
            of_group[fixture.plan.replicas[r].group.index()].insert(part.samples.begin(),
                                                                    part.samples.end());
      CHECK(of_group[0].size() == 20);
      CHECK(of_group[0] == of_group[1]);
      REQUIRE(made.value().prediction.phases.size() == 2);
    }
}

TEST_CASE("plans whose encoders share samples by ranges of items are sound too",
          "[engine][property]") {
  const auto layout =
      GENERATE(Layout::pipelines, Layout::three_to_two, Layout::two_to_three, Layout::colocated);
  const Fixture fixture(layout);
  int plans = 0, shared = 0;
  for (const std::string schedule :
       {"1f1b", "split-1f1b", "zero-bubble", "gpipe", "dip", "three-phase"})
    for (const auto& policy : balancer::policy_names()) {
      INFO(static_cast<int>(layout) << " " << policy << " x " << schedule);
      const auto made = fixture.train(fixture.make("per-phase", policy, schedule, 0, "ranges"),
                                      Fixture::samples_with_a_giant());
      REQUIRE(made.ok());
      const IterationPlan& iteration = made.value().iteration;
      CHECK(scheduler::check(fixture.plan, iteration).empty());
      std::map<std::int32_t, std::set<ReplicaId>> encoded_by;
      for (std::size_t r = 0; r < fixture.plan.replicas.size(); ++r)
        for (const auto& microbatch : iteration.microbatches[r])
          for (const auto& part : microbatch.parts)
            for (const auto unit : part.samples)
              if (unit >= 20)
                encoded_by[iteration.pieces[static_cast<std::size_t>(unit - 20)].sample].insert(
                    ReplicaId{r});
      ++plans;
      shared += encoded_by[3].size() > 1;
      CHECK(made.value().prediction.profile_step_ms > 0);
    }
  CHECK(shared == plans);
}

TEST_CASE("a phase with a giant is more even where it goes in pieces", "[engine]") {
  const auto layout = GENERATE(Layout::pipelines, Layout::three_to_two, Layout::colocated);
  const Fixture fixture(layout);
  const auto balance = [&](const std::string& items) {
    return fixture
        .train(fixture.make("per-phase", "hierarchical", "1f1b", 0, items),
               Fixture::samples_with_a_giant())
        .value()
        .prediction.phases[0];
  };
  const PhaseBalance whole = balance("whole"), ranges = balance("ranges");
  CHECK(ranges.drawn == whole.drawn);
  CHECK(ranges.planned < whole.planned);
  CHECK(whole.planned > 1.2);
  CHECK(ranges.planned < 1.06);
  CHECK(ranges.planned >= ranges.bound - 1e-9);
  CHECK(ranges.bound <= whole.bound);
}

TEST_CASE("with an exchange all llm replicas have as many microbatches as a giant leaves",
          "[engine]") {
  const auto layout = GENERATE(Layout::pipelines, Layout::three_to_two);
  Fixture fixture(layout);
  fixture.costs = nullptr;  // Nobody can tell whether fewer rounds take less.
  // Of the llm replica with the giant, and of the other one.
  const auto counts = [&](const std::string& exchange) {
    const auto made = fixture.train(fixture.make(exchange, "hierarchical", "1f1b", 0, "ranges"),
                                    Fixture::samples_with_a_giant());
    std::vector<std::size_t> found;
    for (std::size_t r = 0; r < fixture.plan.replicas.size(); ++r)
      if (fixture.plan.is_llm(ReplicaId{r}))
        found.push_back(made.value().iteration.microbatches[r].size());
    return found;
  };
  // By its own samples the other one has as many as it may.
  CHECK(counts("off") == std::vector<std::size_t>{1, 3});
  // Its pieces are a quarter of it for two encoders, a sixth for three, and an even share is a half
  // or a third of more than it: two rounds for all.
  CHECK(counts("per-phase") == std::vector<std::size_t>{2, 2});
}

TEST_CASE("who would hold up one of as many rounds as pieces allow goes in pieces", "[engine]") {
  Fixture fixture(Layout::three_to_two);
  std::vector<int> counts(48, 1);
  for (const std::size_t giant : {3U, 16U, 29U, 41U}) counts[giant] = 12;
  const auto plan = [&](const std::string& items) {
    const auto made = fixture.make("per-phase", "hierarchical", "1f1b", 0, items, 8);
    return fixture.train(made, Fixture::pictures(counts)).value();
  };
  // By rows alone. All in all whole giants leave no replica behind.
  const auto costs = std::exchange(fixture.costs, nullptr);
  CHECK(plan("whole").prediction.phases[0].planned < 1.02);
  CHECK(rounds(plan("ranges")) > rounds(plan("whole")));
  CHECK_FALSE(plan("ranges").iteration.pieces.empty());
  // Where launching a round takes longer than its work there are no more of them.
  fixture.costs = costs;
  CHECK(plan("ranges").prediction.profile_step_ms <= plan("whole").prediction.profile_step_ms);
}

TEST_CASE("what is even as it is moves no rows", "[engine]") {
  const auto layout = GENERATE(Layout::alike, Layout::colocated);
  const Fixture fixture(layout);
  const auto batch = Fixture::pictures(std::vector<int>(12, 1));
  const auto off = fixture.train(fixture.make("off"), batch).value();
  CHECK((fixture.train(fixture.make("per-phase"), batch).value().iteration.microbatches ==
         off.iteration.microbatches));
  CHECK_FALSE(fixture.train(fixture.make("auto"), batch).value().prediction.exchanged);
}

TEST_CASE("under a schedule with phases rounds are spread at once where that takes less",
          "[engine]") {
  const Fixture fixture(Layout::three_to_two, 1e4);
  const auto batch = Fixture::pictures({9, 1, 3, 7, 8, 7, 8, 2, 2, 1, 9, 3});
  const auto plan = [&](const std::string& schedule) {
    return fixture.train(fixture.make("per-phase", "hierarchical", schedule), batch).value();
  };
  const auto one_by_one = plan("1f1b"), at_once = plan("three-phase");
  CHECK(rounds(one_by_one) == 2);
  CHECK(rounds(at_once) == 3);
  CHECK(at_once.prediction.phases[0].planned < one_by_one.prediction.phases[0].planned);
}

TEST_CASE("costs of pieces add up to those of their sample", "[engine]") {
  const Fixture fixture(Layout::three_to_two);
  const auto made = fixture.train(fixture.make("per-phase", "hierarchical", "1f1b", 0, "ranges"),
                                  Fixture::samples_with_a_giant());
  const PhaseWork& vision = made.value().work->phases[0];
  REQUIRE(vision.cut.contains(3));
  for (const auto& [sample, units] : vision.cut) {
    double work = 0, rows = 0;
    for (const auto unit : units) {
      work += vision.work_of(static_cast<std::size_t>(unit));
      rows += vision.rows_of(static_cast<std::size_t>(unit));
    }
    CHECK(work == Catch::Approx(vision.samples[static_cast<std::size_t>(sample)]));
    CHECK(rows == vision.rows[static_cast<std::size_t>(sample)]);
  }
  CHECK(made.value().work->phases[1].cut.empty());
}

TEST_CASE("phases are placed by the links of the profile", "[engine]") {
  const Fixture fixture(Layout::three_to_two);
  const auto made = fixture.train(fixture.make("per-phase")).value();
  const double share = inside_node_share(fixture.costs->options.speeds);
  CHECK(share > 0);
  CHECK(made.work->phases[0].inside_node == share);
}

TEST_CASE("encoders work for llm replicas of all pipelines, and more evenly", "[engine]") {
  const auto layout = GENERATE(Layout::pipelines, Layout::three_to_two, Layout::colocated);
  const Fixture fixture(layout);
  const auto off = fixture.train(fixture.make("off")).value();
  const auto on = fixture.train(fixture.make("per-phase")).value();
  std::size_t several = 0;
  for (const auto& [encoder, llms] : fixture.fed(on.iteration)) several += llms.size() > 1 ? 1 : 0;
  // Where an llm shares its node with an encoder, what that node wants stays there.
  CHECK(several >= (layout == Layout::three_to_two ? 2 : 1));
  if (layout == Layout::pipelines)
    for (const auto& [encoder, llms] : fixture.fed(off.iteration)) CHECK(llms.size() == 1);
  for (std::size_t phase = 0; phase < 2; ++phase) {
    const auto& balance = on.prediction.phases[phase];
    CHECK(balance.planned >= balance.bound - 1e-9);
    CHECK(balance.drawn == off.prediction.phases[phase].drawn);
    // The pipelines' llms are cut otherwise, which nobody has measured before the first batch.
    if (phase == 0 || layout != Layout::pipelines) CHECK(balance.planned < 1.03);
  }
  CHECK(on.prediction.phases[0].planned < on.prediction.phases[0].drawn);
}

TEST_CASE("auto takes whichever is predicted to be shorter", "[engine]") {
  const auto layout =
      GENERATE(Layout::pipelines, Layout::three_to_two, Layout::two_to_three, Layout::colocated);
  const Fixture fixture(layout);
  const auto step_ms = [&](const std::string& exchange) {
    return fixture.train(fixture.make(exchange)).value().prediction.profile_step_ms;
  };
  CHECK(step_ms("auto") == std::min(step_ms("off"), step_ms("per-phase")));
}

TEST_CASE("auto takes no longer than any policy where encoders feed several llms", "[engine]") {
  const auto layout =
      GENERATE(Layout::pipelines, Layout::three_to_two, Layout::two_to_three, Layout::colocated);
  const Fixture fixture(layout);
  for (const std::string schedule : {"1f1b", "split-1f1b"})
    for (const std::string exchange : {"off", "per-phase"}) {
      if (layout == Layout::pipelines && exchange == "off") continue;
      const auto step_ms = [&](const std::string& policy) {
        const auto made = fixture.train(fixture.make(exchange, policy, schedule));
        return made.value().prediction.profile_step_ms;
      };
      const double best = step_ms("auto");
      for (const auto& policy : balancer::policy_names()) {
        INFO(static_cast<int>(layout) << " " << exchange << " " << schedule << " " << policy);
        CHECK(best <= step_ms(policy));
      }
    }
}

TEST_CASE("where bounds in flight leave no order for an exchange, there is none", "[engine]") {
  const Fixture fixture(Layout::two_to_three);
  const auto off = fixture.train(fixture.make("off", "in-order", "1f1b", 1)).value();
  // An encoder's share of a round is two microbatches, and both feed the same llm microbatches.
  const auto on = fixture.train(fixture.make("per-phase", "in-order", "1f1b", 1));
  REQUIRE(on.ok());
  CHECK((on.value().iteration.microbatches == off.iteration.microbatches));
  CHECK_FALSE(on.value().prediction.exchanged);
  REQUIRE(on.value().prediction.exchange_refused);
  CHECK(on.value().prediction.exchange_refused->where == "max_in_flight");
  CHECK_FALSE(off.prediction.exchange_refused);
  const auto free = fixture.train(fixture.make("per-phase", "in-order")).value();
  CHECK((free.iteration.microbatches != off.iteration.microbatches));
  CHECK_FALSE(free.prediction.exchange_refused);
}

TEST_CASE("with an exchange a pipeline is as fast as its llm, whoever encodes for it", "[engine]") {
  const Fixture fixture(Layout::alike);
  Prediction prediction;
  prediction.planned_stage_ms = {100, 5, 1, 5};  // The first encoder works for both.
  prediction.work = {{60, 10}, {40, 10}};
  using Shares = std::vector<PipelineShare>;
  CHECK((shares_of(fixture.plan, prediction) == Shares{{70, 100, 10, 5}, {50, 5, 10, 5}}));
  prediction.exchanged = true;
  CHECK((shares_of(fixture.plan, prediction) == Shares{{0, 0, 10, 5}, {0, 0, 10, 5}}));
  PipelineSpeeds speeds(2);
  speeds.note(shares_of(fixture.plan, prediction));
  CHECK((speeds.ms_per_work() == std::vector<double>{1, 1}));  // Of that it teaches nothing.
  CHECK((speeds.llm_ms_per_work() == std::vector<double>{0.5, 0.5}));
  CHECK(fixture.train(fixture.make("per-phase")).value().prediction.exchanged);
}

TEST_CASE("a plan without a second encoder is the same with an exchange", "[engine]") {
  auto job = tiny_job();
  job.parallel.layout.pipelines.resize(1);
  job.cluster.nodes = job.cluster.local_nodes = 2;
  const auto plan = make_parallel_plan(prepare(job).value()).value();
  const auto trained = [&](const std::string& exchange) {
    MicrobatchingOptions options;
    options.exchange = exchange;
    options.microbatches = 2;
    const Microbatching microbatching(plan, options, nullptr);
    const auto dealt = microbatching.deal({1, 1, Fixture::samples()}, PipelineSpeeds(1)).value();
    return microbatching.plan(dealt).value().iteration;
  };
  CHECK((trained("per-phase").microbatches == trained("off").microbatches));
  CHECK((trained("auto").actions == trained("off").actions));
}

}  // namespace
}  // namespace troupe::engine
