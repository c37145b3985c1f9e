// Replicas of a module group that are not equally fast: who gets how much.

#include "tests/torch_catch.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>

#include "engine/iteration/batch_work.hpp"
#include "engine/iteration/microbatching.hpp"
#include "engine/layout/choose_layout.hpp"
#include "engine/profiling/nominal_profile.hpp"
#include "scheduler/layout/place_by_hand.hpp"
#include "tests/engine/samples_of_lists.hpp"
#include "tests/engine/tiny_job.hpp"

namespace troupe::engine {
namespace {

TEST_CASE("an llm replica of twice the speed trains twice as much", "[engine]") {
  // Two layers on each of two devices, and all four on one.
  auto job = tiny_job();
  job.parallel.layout = {};
  job.parallel.layout.replicas = {
      {{"vision"}, {{0, 0, {{"vision", {}}}}}},
      {{"llm"}, {{1, 0, {{"llm", LayerRange{0, 2}}}}, {2, 0, {{"llm", LayerRange{2, 4}}}}}},
      {{"llm"}, {{3, 0, {{"llm", {}}}}}}};
  const auto plan = make_parallel_plan(prepare(job).value()).value();
  DealtBatch batch{1, 1, {}, {{0, 1, 2, 3, 4, 5, 6, 7, 8}}};
  SampleShape sample;
  sample.llm_tokens = 100;
  sample.trained_tokens = 10;
  batch.samples.assign(9, sample);
  const auto trained_by = [&](const std::string& dealing, std::size_t replica) {
    MicrobatchingOptions options;
    options.dealing = dealing;
    options.microbatches = 2;
    return all_of(
        Microbatching(plan, options, nullptr).plan(batch).value().iteration.microbatches[replica]);
  };
  // One of 50 or of 100 at a time, to whoever would end first; at 100 and 100 the first one.
  CHECK((trained_by("work", 1) == std::vector<std::int32_t>{0, 1, 3, 4, 6, 7}));
  CHECK((trained_by("work", 2) == std::vector<std::int32_t>{2, 5, 8}));
  CHECK((trained_by("count", 1) == std::vector<std::int32_t>{0, 1, 2, 3, 4, 5}));
}

TEST_CASE("an encoder replica is busy as long as its slowest stage", "[engine]") {
  // The first has its layers on one device, the other one on two; three llms want a microbatch.
  auto job = tiny_job();
  job.cluster.nodes = job.cluster.local_nodes = 6;
  job.parallel.layout = {};
  job.parallel.layout.replicas = {
      {{"vision"}, {{0, 0, {{"vision", {}}}}}},
      {{"vision"},
       {{1, 0, {{"vision", LayerRange{0, 1}}}}, {2, 0, {{"vision", LayerRange{1, 3}}}}}},
      {{"llm"}, {{3, 0, {{"llm", {}}}}}},
      {{"llm"}, {{4, 0, {{"llm", {}}}}}},
      {{"llm"}, {{5, 0, {{"llm", {}}}}}}};
  const auto plan = make_parallel_plan(prepare(job).value()).value();
  DealtBatch batch{1, 1, {}, {{0, 1, 2}}};
  SampleShape sample;
  sample.media.push_back({ModuleId{0}, {{16, 16, 4, 4, 4, 0}}});
  sample.llm_tokens = 14;
  sample.trained_tokens = 10;
  batch.samples.assign(3, sample);
  const auto made = Microbatching(plan, {}, nullptr).plan(batch).value().iteration.microbatches;
  // One each; then the second one is done first, as its stages work side by side.
  CHECK((all_of(made[0]) == std::vector<std::int32_t>{0}));
  CHECK((all_of(made[1]) == std::vector<std::int32_t>{1, 2}));
}

TEST_CASE("a replica on other grids is as fast as its costs say", "[engine]") {
  const auto setup = prepare(tiny_job()).value();
  const auto device = scheduler::find_device("H100-80G").value();
  const auto costs =
      planning_costs(setup, computed_profile(setup, device, {{1, 1}, {2, 1}}), device.memory)
          .value();
  std::vector<SampleShape> samples(4);
  for (auto& sample : samples) sample.llm_tokens = 500, sample.trained_tokens = 10;
  const HandReplica vision{{"vision"}, {{0, 0, {{"vision", {}}}}}};
  const HandReplica wide{{"llm"}, {{.node = 0, .runs = {{"llm", {}}}, .devices = {1, 2}, .tp = 2}}};
  const HandReplica narrow{{"llm"}, {{0, 3, {{"llm", {}}}}}};
  const auto llm = [&](const HandReplica& first, const HandReplica& second) {
    const auto plan =
        scheduler::place_by_hand(setup.model, {{}, {vision, first, second}}, {1, 4}).value();
    const auto sums = scheduler::SampleSums(costs->model, samples).of(plan).value();
    const std::vector<SamplePiece> pieces;
    return phase_works(plan, SampleUnits(samples, pieces), &sums).back();
  };
  // Samples are weighed at the degrees of the first one, so its share is 1.
  const PhaseWork at_two = llm(wide, narrow), at_one = llm(narrow, wide);
  REQUIRE(at_two.shares.size() == 2);
  CHECK(at_two.shares[0] == Catch::Approx(1));
  CHECK(at_one.shares[0] == Catch::Approx(1));
  CHECK(at_two.shares[1] == Catch::Approx(at_one.samples[0] / at_two.samples[0]));
  CHECK(at_one.shares[1] == Catch::Approx(at_two.samples[0] / at_one.samples[0]));
  CHECK(at_two.shares[1] != Catch::Approx(1).epsilon(0.02));
}

}  // namespace
}  // namespace troupe::engine
