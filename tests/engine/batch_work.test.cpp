#include "tests/torch_catch.hpp"

#include "engine/iteration/batch_work.hpp"

#include <span>
#include <string>
#include <vector>

#include "engine/iteration/microbatching.hpp"
#include "engine/layout/choose_layout.hpp"
#include "engine/profiling/nominal_profile.hpp"
#include "tests/engine/tiny_job.hpp"

namespace troupe::engine {
namespace {

/// The tiny job as two pipelines of an encoder stage and an llm stage, with computed costs.
struct Fixture {
  JobSetup setup;
  ParallelPlan plan;
  std::shared_ptr<const PlanningCosts> costs;

  Fixture() {
    auto job = tiny_job();
    job.parallel.layout.pipelines = {{{0, 0, {{"vision", {}}}}, {1, 0, {{"llm", {}}}}},
                                     {{2, 0, {{"vision", {}}}}, {3, 0, {{"llm", {}}}}}};
    setup = prepare(job).value();
    plan = make_parallel_plan(setup).value();
    const auto device = scheduler::find_device("H100-80G").value();
    costs = planning_costs(setup, computed_profile(setup, device), {}).value();
  }
};

/// Pictures and texts of eight shapes, each of them three times under another name.
std::vector<SampleShape> some_samples() {
  std::vector<SampleShape> samples;
  for (std::int32_t i = 0; i < 24; ++i) {
    SampleShape sample;
    sample.id = "s" + std::to_string(i);
    sample.position = i;
    const std::int32_t patches = i % 4 == 3 ? 0 : 64 * (1 + i % 8);
    if (patches > 0)
      sample.media.push_back({ModuleId{0}, {{patches, patches, patches / 4, 8, patches / 8, 0}}});
    sample.llm_tokens = patches / 4 + 100 * (1 + i % 8);
    sample.trained_tokens = 10;
    samples.push_back(std::move(sample));
  }
  return samples;
}

TEST_CASE("weights are those of samples, whatever stands beside or behind them", "[engine]") {
  const Fixture fixture;
  const auto samples = some_samples();
  const std::vector<SamplePiece> pieces{{0, ModuleId{0}, 0, 1}};
  const SampleUnits units(samples, pieces);
  const scheduler::CostModel& model = fixture.costs->model;
  scheduler::SampleSums whole(model, samples), with_pieces(model, units.shapes());
  const auto weights = weigh_samples(fixture.plan, &whole, samples).value();
  REQUIRE(weights.size() == samples.size());
  CHECK((weigh_samples(fixture.plan, &with_pieces, samples).value() == weights));
  for (std::size_t s = 0; s < samples.size(); ++s) {
    const auto own = std::span(samples).subspan(s, 1);
    scheduler::SampleSums alone(model, own);
    CHECK((weigh_samples(fixture.plan, &alone, own).value().front() == weights[s]));
  }
}

TEST_CASE("a batch is weighed as it is dealt, for all that is planned with it", "[engine]") {
  const Fixture fixture;
  const auto samples = some_samples();
  scheduler::SampleSums sums(fixture.costs->model, samples);
  const auto weights = weigh_samples(fixture.plan, &sums, samples).value();
  MicrobatchingOptions options;
  options.policy = "hierarchical";
  options.microbatches = 3;
  const Microbatching microbatching(fixture.plan, options, fixture.costs);
  const PipelineSpeeds speeds(fixture.plan.pipelines.size());
  auto dealt = microbatching.deal({1, 1, samples}, speeds).value();
  CHECK((dealt.weights == weights));
  const auto planned = microbatching.plan(dealt).value();
  CHECK((planned.work->profile == weights));
  // Nobody need have weighed it.
  dealt.weights.clear();
  const auto anew = microbatching.plan(dealt).value();
  CHECK((anew.work->profile == weights));
  CHECK((anew.iteration == planned.iteration));
  CHECK(anew.prediction.profile_step_ms == planned.prediction.profile_step_ms);
}

TEST_CASE("what a sample takes of each phase is what it takes alone", "[engine]") {
  const Fixture fixture;
  const auto samples = some_samples();
  const auto works_of = [&](std::span<const SampleShape> some) {
    scheduler::SampleSums sums(fixture.costs->model, some);
    const auto costs = sums.of(fixture.plan).value();
    return phase_works(fixture.plan, SampleUnits(some, {}), &costs);
  };
  const auto phases = works_of(samples);
  REQUIRE(phases.size() == 2);
  for (std::size_t s = 0; s < samples.size(); ++s) {
    const auto alone = works_of(std::span(samples).subspan(s, 1));
    for (std::size_t g = 0; g < phases.size(); ++g)
      CHECK(phases[g].samples[s] == alone[g].samples.front());
  }
  CHECK(phases[0].samples[3] == 0);
  CHECK(phases[0].samples[1] > 0);
}

TEST_CASE("a batch is planned alike, whether or not its samples were summed up before",
          "[engine]") {
  const Fixture fixture;
  MicrobatchingOptions options;
  options.exchange = "auto";  // So that it is dealt twice, and planned each way.
  options.policy = "hierarchical";
  options.microbatches = 4;
  const Microbatching microbatching(fixture.plan, options, fixture.costs);
  const auto samples = some_samples();
  const auto dealt = microbatching.deal({1, 1, samples}, PipelineSpeeds(2)).value();
  CHECK((dealt.samples == samples));
  CHECK_FALSE(dealt.by_phase.empty());
  REQUIRE(dealt.sums != nullptr);
  CHECK(dealt.sums->size() == samples.size());
  auto other = dealt;
  other.sums = nullptr;
  const auto planned = microbatching.plan(dealt).value();
  const auto again = microbatching.plan(other).value();
  CHECK((planned.iteration == again.iteration));
  CHECK((planned.iteration.samples == samples));
  CHECK(planned.prediction.profile_step_ms == again.prediction.profile_step_ms);
}

}  // namespace
}  // namespace troupe::engine
