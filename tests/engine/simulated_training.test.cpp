#include "tests/torch_catch.hpp"

#include "engine/layout/simulated_training.hpp"

#include <catch2/generators/catch_generators.hpp>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "engine/layout/choose_layout.hpp"
#include "engine/profiling/nominal_profile.hpp"
#include "scheduler/iteration/deliveries.hpp"
#include "scheduler/layout/place_by_hand.hpp"
#include "tests/engine/tiny_job.hpp"

namespace troupe::engine {
namespace {

/// The tiny job with costs: two pipelines that are cut differently.
JobSetup costed_setup(const std::string& policy, const std::string& schedule,
                      const std::string& offloads = "off") {
  auto job = tiny_job();
  job.train.global_batch_size = 16;
  job.train.microbatches = 4;
  job.balancer.policy = policy;
  job.scheduler.schedule = schedule;
  job.scheduler.offload_encoders = offloads;
  auto setup = prepare(job).value();
  const auto device = scheduler::find_device("H100-80G").value();
  setup.costs = planning_costs(setup, computed_profile(setup, device), device.memory).value();
  return setup;
}

SimulatedTraining on_paper(const JobSetup& setup, const ParallelPlan& plan) {
  const auto options = planner_options(setup, 600, 1);
  return {plan, options.microbatching, options.costs};
}

TEST_CASE("what is simulated is what training runs, for every policy and step", "[engine]") {
  const std::string policy =
      GENERATE("in-order", "random", "disttrain", "llm-only", "karmarkar-karp", "dflop",
               "hierarchical", "deferral", "auto");
  CAPTURE(policy);
  const auto setup = costed_setup(policy, policy == "deferral" ? "split-1f1b" : "1f1b");
  const auto plan = make_parallel_plan(setup).value();
  BatchPlanner planner(plan, planner_options(setup, 600, 1));
  auto training = on_paper(setup, plan);

  std::set<std::size_t> dealt;  // Samples of pipeline 0 in each step.
  for (std::int64_t batch = 0; batch < 6; ++batch) {
    const auto trained = plan_tiny(planner, setup, plan, batch);
    REQUIRE(trained.ok());
    auto simulated = training.step(trained.value().iteration.samples);
    REQUIRE(simulated.ok());
    auto& iteration = simulated.value().iteration;
    CHECK(iteration.epoch_number == 0);  // There is no configuration to number on paper.
    iteration.epoch_number = trained.value().iteration.epoch_number;
    CHECK((iteration == trained.value().iteration));
    CHECK(simulated.value().step.step_ms == trained.value().prediction.calibrated_step_ms);
    CHECK(simulated.value().lower_bound_ms <= simulated.value().step.step_ms);
    std::size_t own = 0;
    for (const auto& microbatch : iteration.microbatches[1])
      for (const auto& part : microbatch.parts) own += part.samples.size();
    dealt.insert(own);
  }
  // The first deals are even, later ones know that the pipelines are not equally fast.
  CHECK(dealt.size() > 1);
}

TEST_CASE("what training offloads is in host memory on paper, too", "[engine]") {
  // Also where parameters and moments are there with it.
  const std::string offloads = GENERATE("off", "activations", "all");
  CAPTURE(offloads);
  const auto setup = costed_setup("in-order", "three-phase", offloads);
  const auto plan = make_parallel_plan(setup).value();
  BatchPlanner planner(plan, planner_options(setup, 600, 1));
  const auto trained = plan_tiny(planner, setup, plan, 0);
  REQUIRE(trained.ok());
  const Prediction& promised = trained.value().prediction;

  const auto simulated = on_paper(setup, plan).step(trained.value().iteration.samples);
  REQUIRE(simulated.ok());
  const scheduler::SimulatedStep& step = simulated.value().step;
  CHECK(step.step_ms == promised.calibrated_step_ms);
  std::vector<Bytes> kept;
  for (const double bytes : step.peak_activation_bytes)
    kept.push_back(Bytes{static_cast<std::int64_t>(bytes)});
  CHECK((kept == promised.activations));
  // Nodes 0 and 2 encode, in four microbatches before the llm begins.
  REQUIRE(step.peak_host_bytes.size() == 4);
  for (const std::size_t device : {0, 2})
    CHECK((step.peak_host_bytes[device] > 0) == (offloads != "off"));
}

TEST_CASE("the search says of a layout what training on paper does, whatever is offloaded",
          "[engine]") {
  const std::string offloads = GENERATE("off", "activations", "moments", "parameters", "all");
  CAPTURE(offloads);
  const auto setup = costed_setup("in-order", "three-phase", offloads);
  // One pipeline: two are dealt by work in training, by count in the search.
  HandLayout layout;
  auto& stages = layout.pipelines.emplace_back();
  stages.push_back({0, 0, {{"vision", {}}, {"llm", LayerRange{0, 2}}}});
  stages.push_back({1, 0, {{"llm", LayerRange{2, 4}}}});
  const auto plan = scheduler::place_by_hand(setup.model, layout, {2, 1}).value();
  auto request = layout_request(setup, setup.costs->model, setup.costs->options.speeds);
  request.device_memory = setup.costs->device_memory;
  for (std::int32_t i = 0; i < 20; ++i) {
    SampleShape& sample = request.samples.emplace_back();
    sample.position = i;
    sample.id = std::to_string(i);
    sample.media.push_back({ModuleId{0}, {{16, 16, 4, 4, 4, 0}}});
    sample.llm_tokens = 14 + i % 5;
    sample.trained_tokens = 5;
  }
  const auto judged = training_judge(setup, *setup.costs, request.samples)(plan);
  const auto searched = scheduler::predict_step(plan, request);
  REQUIRE(judged.ok());
  REQUIRE(searched.ok());
  CHECK(searched.value().step_ms == judged.value().step_ms);
  CHECK(searched.value().peak_memory_bytes == judged.value().peak_memory_bytes);
  CHECK(searched.value().peak_host_bytes == judged.value().peak_host_bytes);
  REQUIRE(searched.value().peak_host_bytes.size() == 2);
  CHECK((searched.value().peak_host_bytes[0] > 0) == (offloads != "off"));
}

TEST_CASE("what moves in training for nodes that do not see it moves on paper", "[engine]") {
  auto setup = costed_setup("hierarchical", "1f1b");
  setup.job.data.shuffle = setup.data.shuffle = false;
  setup.job.data.sources.resize(2);
  setup.job.data.sources[0].nodes = {1, 3};
  const auto plan = make_parallel_plan(setup).value();
  BatchPlanner planner(
      plan, planner_options(setup, data::Epochs(std::vector<SourceCounts>{{0, {10, 600}}}), 1));
  const auto trained = plan_tiny(planner, setup, plan, 0);
  REQUIRE(trained.ok());
  const IterationPlan& iteration = trained.value().iteration;
  REQUIRE(iteration.deliveries.size() > 2);
  auto samples = scheduler::of_no_layout(iteration.samples);
  for (std::size_t i = 0; i < 10; ++i) samples[i].seen_by = {NodeId{1}, NodeId{3}, NodeId{9}};

  auto simulated = on_paper(setup, plan).step(samples);
  REQUIRE(simulated.ok());
  simulated.value().iteration.epoch_number = iteration.epoch_number;
  CHECK((simulated.value().iteration == iteration));
  CHECK(simulated.value().step.step_ms == trained.value().prediction.calibrated_step_ms);

  for (auto& sample : samples) sample.seen_by = {NodeId{9}};
  const auto unseen = on_paper(setup, plan).step(samples);
  REQUIRE_FALSE(unseen.ok());
  CHECK(unseen.error().code == Errc::infeasible);
}

TEST_CASE("the bound of a step counts every device of a grid", "[engine]") {
  // Vision on both devices, the llm on the second one: that one does all there is.
  auto setup = costed_setup("in-order", "1f1b");
  const auto device = scheduler::find_device("H100-80G").value();
  setup.costs =
      planning_costs(setup, computed_profile(setup, device, {{1, 1}, {2, 1}}), device.memory)
          .value();
  const HandLayout layout{
      {{{.node = 0, .runs = {{"vision", {}}}, .devices = {0, 1}, .tp = 2}, {0, 1, {{"llm", {}}}}}},
      {}};
  const auto plan = scheduler::place_by_hand(setup.model, layout, {1, 2}).value();
  auto training = on_paper(setup, plan);
  std::vector<SampleShape> samples(16);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    samples[i].position = static_cast<std::int64_t>(i);
    samples[i].id = std::to_string(i);
    samples[i].llm_tokens = 10 + 4;
    samples[i].trained_tokens = 5;
    samples[i].media.push_back({ModuleId{0}, {{16, 16, 4, 4, 4, 0}}});
  }
  const auto batch = training.step(samples);
  REQUIRE(batch.ok());
  const auto& stages = batch.value().step.stage_ms;
  REQUIRE(stages.size() == 2);
  CHECK(stages[0] > 0);
  CHECK(batch.value().lower_bound_ms == stages[0] + stages[1]);
  // Both lists run the encoder; the second one alone the llm.
  CHECK(plan.leads_of(StageId{0}).size() == 2);
  CHECK(batch.value().step.peak_memory_bytes[1] > batch.value().step.peak_memory_bytes[0]);
}

TEST_CASE("a step on paper says why a batch cannot be planned", "[engine][errors]") {
  const auto setup = costed_setup("best", "1f1b");
  const auto plan = make_parallel_plan(setup).value();
  auto training = on_paper(setup, plan);
  std::vector<SampleShape> samples(4);
  for (auto& sample : samples) sample.llm_tokens = 10;
  const auto step = training.step(samples);
  REQUIRE_FALSE(step.ok());
  CHECK(step.error().message.find("best") != std::string::npos);
}

}  // namespace
}  // namespace troupe::engine
