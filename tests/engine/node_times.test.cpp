// What plans make of nodes that are not as fast as the profile takes them for.

#include "tests/torch_catch.hpp"

#include "engine/iteration/node_times.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <numeric>
#include <utility>

#include "engine/iteration/batch_planner.hpp"
#include "engine/iteration/microbatching.hpp"
#include "engine/iteration/pipeline_shares.hpp"
#include "engine/layout/choose_layout.hpp"
#include "engine/profiling/nominal_profile.hpp"
#include "tests/engine/planner_fixture.hpp"
#include "tests/engine/samples_of_lists.hpp"

namespace troupe::engine {
namespace {

/// Costs of a device so slow that work takes longer than launching it.
JobSetup with_costs(const job::Job& job) {
  auto setup = prepare(job).value();
  auto device = scheduler::find_device("H100-80G").value();
  for (double* speed : {&device.bf16_teraflops, &device.fp32_teraflops, &device.fp64_teraflops,
                        &device.memory_gigabytes_per_s})
    *speed /= 1e4;
  setup.costs = planning_costs(setup, computed_profile(setup, device), {}).value();
  return setup;
}

/// The encoder of each of two pipelines on its first node, the llm on its second one.
job::Job alike() {
  auto job = tiny_job();
  for (int p = 0; p < 2; ++p)
    job.parallel.layout.pipelines[static_cast<std::size_t>(p)] = {{2 * p, 0, {{"vision", {}}}},
                                                                  {2 * p + 1, 0, {{"llm", {}}}}};
  job.train.global_batch_size = 24;
  return job;
}

TEST_CASE("a pipeline is as slow as a slow node makes its busiest device", "[engine]") {
  const auto plan = make_parallel_plan(prepare(alike()).value()).value();
  REQUIRE(plan.stages.size() == 4);
  const std::vector<double> stage_ms{100, 50, 20, 50};
  using Times = std::vector<double>;
  const auto of = [&](const NodeTimes& times, bool llm, const std::vector<double>& ms) {
    return times_of_pipelines(plan, ms, times, llm);
  };
  CHECK((of({}, false, stage_ms) == Times{1, 1}));
  // The llm takes 150 ms in place of 50, where 100 was the most; by itself three times as long.
  CHECK((of({{NodeId{1}, 3}}, false, stage_ms) == Times{1.5, 1}));
  CHECK((of({{NodeId{1}, 3}}, true, stage_ms) == Times{3, 1}));
  // 40 ms in place of 20 hold nobody up beside 50.
  CHECK((of({{NodeId{2}, 2}}, false, stage_ms) == Times{1, 1}));
  CHECK((of({{NodeId{0}, 0.75}, {NodeId{3}, 2}}, false, stage_ms) == Times{0.75, 2}));
  // Before anything is planned all stages have as much to do.
  CHECK((of({{NodeId{2}, 2}}, false, {}) == Times{1, 2}));
}

/// Samples of each pipeline in a batch of 24, as the llm's nodes are to decode them, after two that
/// were planned before its nodes were told to be `times` as fast.
std::pair<std::size_t, std::size_t> dealt(bool correction, const std::vector<NodeTimes>& times) {
  auto job = alike();
  job.balancer.adaptive_correction = correction;
  const auto setup = with_costs(job);
  const auto plan = make_parallel_plan(setup).value();
  BatchPlanner planner(plan, planner_options(setup, 600, 1));
  for (std::int64_t batch = 0; batch < 2; ++batch)
    REQUIRE(plan_tiny(planner, setup, plan, batch).ok());
  for (const NodeTimes& each : times) planner.take_times(each);
  const auto orders = measured(planner, setup, 2);
  return {orders.at(NodeId{1}).samples.size(), orders.at(NodeId{3}).samples.size()};
}

TEST_CASE("the pipeline of a slow node gets fewer samples at once, without the switch",
          "[engine]") {
  const NodeTimes slow{{NodeId{2}, 5}, {NodeId{3}, 5}};
  const auto before = dealt(false, {}), meanwhile = dealt(false, {slow}),
             after = dealt(false, {slow, {{NodeId{2}, 1}, {NodeId{3}, 1}}});
  CHECK(before.first + before.second == 24);
  CHECK(meanwhile.first + meanwhile.second == 24);
  CHECK(meanwhile.second >= 1);
  // A sixth of the work in place of half of it.
  CHECK(2 * meanwhile.second <= before.second);
  CHECK(after == before);
}

TEST_CASE("what corrections learn by themselves is not counted twice", "[engine]") {
  CHECK(dealt(true, {{{NodeId{2}, 5}, {NodeId{3}, 5}}}) == dealt(true, {}));
}

/// Encoders on nodes 0 and 1, llms on nodes 2 to 4, as replicas of one pipeline.
job::Job two_encoders_three_llms() {
  auto job = tiny_job();
  job.parallel.layout = {};
  job.cluster.nodes = job.cluster.local_nodes = 5;
  for (int e = 0; e < 2; ++e)
    job.parallel.layout.replicas.push_back({{"vision"}, {{e, 0, {{"vision", {}}}}}});
  for (int l = 2; l < 5; ++l)
    job.parallel.layout.replicas.push_back({{"llm"}, {{l, 0, {{"llm", {}}}}}});
  return job;
}

/// Samples of one pipeline, all alike.
DealtBatch twenty_four() {
  SampleShape sample;
  sample.media.push_back({ModuleId{0}, {{64, 64, 16, 8, 8, 0}}});
  sample.llm_tokens = 200;
  sample.trained_tokens = 10;
  DealtBatch batch{1, 1, std::vector<SampleShape>(24, sample), {std::vector<std::int32_t>(24)}};
  std::iota(batch.pipelines[0].begin(), batch.pipelines[0].end(), 0);
  return batch;
}

/// The same behind three hundred of text alone.
DealtBatch behind_text(DealtBatch batch) {
  SampleShape text;
  text.llm_tokens = 200;
  text.trained_tokens = 10;
  batch.samples.insert(batch.samples.begin(), 300, text);
  batch.pipelines[0].resize(batch.samples.size());
  std::iota(batch.pipelines[0].begin(), batch.pipelines[0].end(), 0);
  return batch;
}

TEST_CASE("replicas on a slow node get fewer samples, of the llm and of encoders", "[engine]") {
  const auto setup = with_costs(two_encoders_three_llms());
  const auto plan = make_parallel_plan(setup).value();
  const DealtBatch batch = twenty_four();

  const std::string exchange = GENERATE("off", "per-phase");
  CAPTURE(exchange);
  const auto counts = [&](const NodeTimes& times) {
    MicrobatchingOptions options;
    options.exchange = exchange;
    options.microbatches = 3;
    Microbatching microbatching(plan, options, setup.costs);
    microbatching.take_times(times);
    const auto made = microbatching.plan(batch).value().iteration.microbatches;
    std::vector<std::size_t> sizes;
    for (const auto& list : made) sizes.push_back(all_of(list).size());
    return sizes;
  };
  const auto even = counts({});
  CHECK((even[2] == 8 && even[3] == 8 && even[4] == 8));
  // A quarter of the speed: of 24 samples 24 x 1/4 / (1 + 1/4 + 1) = 2.7.
  const auto llm = counts({{NodeId{3}, 4}});
  CHECK((llm[3] >= 1 && llm[3] <= 4 && llm[2] >= 9 && llm[4] >= 9));
  // Of 24 samples 24 x 1/4 / (1 + 1/4) = 4.8, and what one microbatch is.
  const auto encoders = counts({{NodeId{0}, 4}});
  CHECK(encoders[0] + encoders[1] == 24);
  CHECK(2 * encoders[0] <= encoders[1]);
}

TEST_CASE("a speed that is said of a node and was learned before counts once", "[engine]") {
  const auto setup = with_costs(two_encoders_three_llms());
  const auto plan = make_parallel_plan(setup).value();
  REQUIRE((plan.devices[plan.at(StageId{0}).devices.front().index()].node == NodeId{0}));
  // Text says nothing of who works on pictures.
  const DealtBatch batch = GENERATE(false, true) ? behind_text(twenty_four()) : twenty_four();
  MicrobatchingOptions options;
  options.exchange = "per-phase";
  options.microbatches = 3;
  options.adaptive_correction = true;
  // Watching has stopped, as it brought too little: what is said counts from then on.
  LearnedCosts nothing = Microbatching(plan, options, setup.costs).learned();
  nothing.watches = false;
  // Node 0 takes four times as long for samples of all sizes.
  LearnedCosts slow = nothing;
  for (const std::string& module : nothing.stages[0].modules)
    for (const TokenCount tokens : {64, 128, 192, 256})
      slow.samples.push_back({0, module, tokens, 4, 10});
  const auto share = [&](const LearnedCosts& learned, const NodeTimes& said) {
    Microbatching microbatching(plan, options, setup.costs);
    microbatching.restore(learned);
    microbatching.take_times(said);
    return microbatching.plan(batch).value().work->phases[0].shares[0];
  };
  const NodeTimes times{{NodeId{0}, 4}};
  CAPTURE(batch.samples.size());
  CHECK(share(nothing, {}) == Catch::Approx(1));
  CHECK(share(slow, {}) == Catch::Approx(4));
  CHECK(share(nothing, times) == Catch::Approx(4));
  CHECK(share(slow, times) == Catch::Approx(4));
}

}  // namespace
}  // namespace troupe::engine
