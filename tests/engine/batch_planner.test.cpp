#include "tests/torch_catch.hpp"

#include "engine/batch_planner.hpp"

#include <algorithm>

#include "engine/nominal_profile.hpp"
#include "engine/packing.hpp"
#include "scheduler/roofline.hpp"
#include "scheduler/standby_holders.hpp"
#include "tests/engine/measured_events.hpp"
#include "tests/engine/tiny_job.hpp"

namespace troupe::engine {
namespace {

struct Fixture {
  JobSetup setup = prepare(tiny_job()).value();
  ParallelPlan plan = make_parallel_plan(setup).value();
  BatchPlanner planner{plan, planner_options(setup, 16, 1)};
};

/// Reports of all nodes on a batch, as their loaders would make them.
std::vector<BatchReport> reports(const Fixture& fixture, std::int64_t batch,
                                 std::int64_t bad_position = -1) {
  std::vector<BatchReport> all;
  for (const auto& [node, order] : fixture.planner.orders(batch)) {
    std::vector<data::DecodeOutcome> outcomes;
    for (const auto& wanted : order.samples) {
      if (wanted.position == bad_position && !wanted.media.empty())
        outcomes.emplace_back(data::BadSample{"s" + std::to_string(bad_position),
                                              data::BadKind::missing_file, "x.png", "", "gone",
                                              ""});
      else
        outcomes.emplace_back(tiny_sample(wanted.position));
    }
    all.push_back(report_on(node, order, outcomes, fixture.setup, 1));
  }
  return all;
}

TEST_CASE("media go to nodes where encoders begin, text to the llm's ends", "[engine]") {
  Fixture fixture;
  const auto orders = fixture.planner.orders(0);

  // Six positions: 0-2 for pipeline 0 (nodes 0, 1), 3-5 for pipeline 1 (nodes 2, 3).
  REQUIRE(orders.size() == 4);
  const auto& encoder = orders.at(NodeId{0}).samples;
  const std::vector<ModuleId> vision{ModuleId{0}};
  CHECK((encoder ==
         std::vector<OrderedSample>{{0, vision, false}, {1, vision, false}, {2, vision, false}}));
  const auto& both = orders.at(NodeId{2}).samples;
  CHECK((both ==
         std::vector<OrderedSample>{{3, vision, true}, {4, vision, true}, {5, vision, true}}));
  const auto& head = orders.at(NodeId{3}).samples;
  CHECK((head == std::vector<OrderedSample>{{3, {}, true}, {4, {}, true}, {5, {}, true}}));
}

TEST_CASE("a node that only stands by decodes nothing and is asked all the same", "[engine]") {
  Fixture fixture;
  fixture.plan.devices.push_back({NodeId{4}, 0});
  fixture.plan = scheduler::add_standbys(fixture.plan, {3, Dtype::fp64}).value();
  BatchPlanner planner{fixture.plan, planner_options(fixture.setup, 16, 1)};
  const auto orders = planner.orders(0);
  REQUIRE(orders.size() == 5);
  CHECK(orders.at(NodeId{4}).samples.empty());
  CHECK((orders.at(NodeId{0}).samples == fixture.planner.orders(0).at(NodeId{0}).samples));
}

TEST_CASE("reports of several nodes join into one plan", "[engine]") {
  Fixture fixture;
  const auto planned = fixture.planner.plan(0, reports(fixture, 0));

  REQUIRE(planned.ok());
  const IterationPlan& iteration = planned.value().iteration;
  REQUIRE(iteration.samples.size() == 6);
  for (std::int64_t i = 0; i < 6; ++i) {
    const SampleShape& shape = iteration.samples[static_cast<std::size_t>(i)];
    CHECK(shape.llm_tokens == tiny_sample(i).llm_tokens);
    CHECK(shape.media.empty() == (i % 2 == 1));
  }
  CHECK(iteration.step == 1);
  CHECK(planned.value().dropped.empty());
  const scheduler::ModelFlops flops(fixture.setup.model, fixture.setup.modules());
  CHECK(planned.value().model_flops == flops.of(iteration.samples));
  CHECK(planned.value().model_flops > 0);
}

TEST_CASE("a sample that is bad on one node is dropped on all", "[engine]") {
  Fixture fixture;
  const auto planned = fixture.planner.plan(0, reports(fixture, 0, 4));

  REQUIRE(planned.ok());
  REQUIRE(planned.value().dropped.size() == 1);
  CHECK(planned.value().dropped[0].why.id == "s4");
  std::vector<std::string> ids;
  for (const auto& sample : planned.value().iteration.samples) ids.push_back(sample.id);
  CHECK(ids == std::vector<std::string>{"s0", "s1", "s2", "s3", "s5"});
  // The sample is not replaced: pipeline 1 trains two of its three.
  std::size_t second = 0;
  for (const auto& microbatch : planned.value().iteration.microbatches.back())
    second += microbatch.parts[0].samples.size();
  CHECK(second == 2);
}

TEST_CASE("the last batch of an epoch is smaller and loses nobody", "[engine][property]") {
  Fixture fixture;  // 16 records in batches of 6: 6, 6, 4.
  const auto planned = fixture.planner.plan(2, reports(fixture, 2));

  REQUIRE(planned.ok());
  CHECK(planned.value().iteration.samples.size() == 4);
  CHECK(planned.value().iteration.samples.front().position == 12);
}

TEST_CASE("positions count on through the epochs", "[engine]") {
  Fixture fixture;  // 16 records in batches of 6: batch 3 is the first of the second epoch.
  const auto planned = fixture.planner.plan(3, reports(fixture, 3));

  REQUIRE(planned.ok());
  CHECK(planned.value().iteration.samples.front().position == 16);
  CHECK(planned.value().iteration.step == 4);
}

TEST_CASE("each encoder's media go to its own node, and the reports join", "[engine]") {
  job::Job job = tiny_job();
  ModuleConfig audio{"audio", ModuleKind::encoder, "whisper", "audio_projector", false, {}, 0.02,
                     {}};
  audio.config = AudioConfig{
      .encoder_layers = 1, .d_model = 16, .encoder_attention_heads = 2, .encoder_ffn_dim = 16};
  ModuleConfig projector = job.modules[1];
  projector.name = "audio_projector";
  job.modules.insert(job.modules.begin() + 1, {audio, projector});
  job.parallel.layout.pipelines = {
      {{0, 0, {{"vision", {}}}}, {1, 0, {{"audio", {}}}}, {2, 0, {{"llm", {}}}}}};
  job.cluster.nodes = job.cluster.local_nodes = 3;
  Fixture fixture{prepare(job).value()};

  const auto orders = fixture.planner.orders(0);
  CHECK((orders.at(NodeId{0}).samples[0] == OrderedSample{0, {ModuleId{0}}, false}));
  CHECK((orders.at(NodeId{1}).samples[0] == OrderedSample{0, {ModuleId{1}}, false}));
  CHECK((orders.at(NodeId{2}).samples[0] == OrderedSample{0, {}, true}));
  const auto modules = media_modules(fixture.setup);
  CHECK((wanted_parts(orders.at(NodeId{1}).samples[0], modules) ==
         data::WantedParts{false, true, false}));

  // Sample 0 has a picture of 16 patches, which node 0 finds, and a clip of 5 frames, which node 1
  // finds; 4 and 3 rows replace their placeholders.
  std::vector<BatchReport> found;
  for (const auto& [node, order] : orders) {
    std::vector<data::DecodeOutcome> outcomes;
    for (const auto& wanted : order.samples) {
      auto sample = tiny_sample(wanted.position);
      if (node != NodeId{0}) sample.images.clear();
      if (node == NodeId{1}) sample.audio.push_back({std::vector<float>(5 * 80), 5, 0});
      outcomes.emplace_back(std::move(sample));
    }
    found.insert(found.begin(), report_on(node, order, outcomes, fixture.setup, 1));
  }
  const auto planned = fixture.planner.plan(0, found);
  REQUIRE(planned.ok());
  const SampleShape& shape = planned.value().iteration.samples[0];
  REQUIRE(shape.media.size() == 2);
  CHECK(shape.media[0].module == ModuleId{0});
  CHECK(shape.output_rows(ModuleId{0}) == 4);
  CHECK(shape.output_rows(ModuleId{1}) == 3);
  CHECK(shape.llm_tokens == tiny_sample(0).llm_tokens + 3);

  // Without the report of one encoder the sample is not known.
  const std::vector<BatchReport> fewer{found[0], found[2]};
  CHECK_FALSE(fixture.planner.plan(0, fewer).ok());
}

TEST_CASE("of two faults of a sample the lower node's is named, whoever was first", "[engine]") {
  Fixture fixture;
  auto all = reports(fixture, 0);
  for (auto& sample : all[3].samples)
    if (sample.position == 4) sample.bad = true, sample.bad_reason = "text";
  for (auto& sample : all[2].samples)
    if (sample.position == 4) sample.bad = true, sample.bad_reason = "picture";

  for (int turn = 0; turn < 2; ++turn) {
    const auto planned = fixture.planner.plan(0, all);
    REQUIRE(planned.ok());
    REQUIRE(planned.value().dropped.size() == 1);
    CHECK(planned.value().dropped[0].why.reason == "picture");
    std::reverse(all.begin(), all.end());
  }
}

TEST_CASE("a position that no node reported is an error", "[engine][errors]") {
  Fixture fixture;
  auto some = reports(fixture, 0);
  some.pop_back();
  some.pop_back();

  const auto planned = fixture.planner.plan(0, some);

  REQUIRE_FALSE(planned.ok());
  CHECK(planned.error().message.find("position 3") != std::string::npos);
}

TEST_CASE("a sequence beyond the limit is dropped once its rows are known", "[engine]") {
  Fixture fixture;
  auto options = planner_options(fixture.setup, 16, 1);
  options.max_seq_len = tiny_sample(1).llm_tokens;  // Pictures add three rows and a placeholder.
  BatchPlanner strict(fixture.plan, options);

  const auto planned = strict.plan(0, reports(fixture, 0));

  REQUIRE(planned.ok());
  REQUIRE(planned.value().dropped.size() == 3);
  for (const auto& dropped : planned.value().dropped) {
    CHECK(dropped.why.kind == data::BadKind::too_long);
    CHECK(dropped.why.where == "samples.json:" + std::to_string(dropped.position));
    CHECK_FALSE(dropped.why.fix.empty());
  }
}

/// Samples per pipeline, in a batch of 24, after twelve steps in which pipeline 1 measured five
/// times what was predicted.
std::pair<std::size_t, std::size_t> dealt_to_a_slow_pipeline(bool correction) {
  auto job = tiny_job();
  job.train.global_batch_size = 24;
  job.balancer.adaptive_correction = correction;
  auto setup = prepare(job).value();
  const auto device = scheduler::find_device("H100-80G").value();
  setup.costs = planning_costs(setup, computed_profile(setup, device), device.memory).value();
  const auto plan = make_parallel_plan(setup).value();
  BatchPlanner planner(plan, planner_options(setup, 600, 1));
  for (std::int64_t batch = 0; batch < 12; ++batch) {
    const auto report = tiny_report(setup, plan, batch);
    const auto planned = planner.plan(batch, {&report, 1}).value();
    const auto factor = [&](StageId stage) {
      return plan.pipeline_of(stage) == PipelineId{1} ? 5.0 : 1.0;
    };
    planner.learn(planned, measured_events(plan, *setup.costs, planned.iteration, factor),
                  planned.prediction.calibrated_step_ms);
  }
  // The llm's heads, on nodes 1 and 3, read every sample of their pipelines.
  const auto orders = planner.orders(14);
  return {orders.at(NodeId{1}).samples.size(), orders.at(NodeId{3}).samples.size()};
}

TEST_CASE("a pipeline that is measured slow gets fewer samples, with the switch alone",
          "[engine]") {
  const auto predicted = dealt_to_a_slow_pipeline(false);
  const auto measured = dealt_to_a_slow_pipeline(true);
  CHECK(predicted.first + predicted.second == 24);
  CHECK(measured.first + measured.second == 24);
  CHECK(measured.second >= 1);
  CHECK(2 * measured.second <= predicted.second);
}

TEST_CASE("a slice keeps everything but other nodes' actions", "[engine]") {
  Fixture fixture;
  const auto planned = fixture.planner.plan(0, reports(fixture, 0)).value();

  const auto slice = slice_for(planned.iteration, fixture.plan, NodeId{2});

  for (std::size_t device = 0; device < 4; ++device)
    CHECK(slice.actions[device].empty() == (device != 2));
  CHECK((slice.messages == planned.iteration.messages));
}

}  // namespace
}  // namespace troupe::engine
