#include "engine/profiling/nominal_profile.hpp"
#include "models/whisper/family.hpp"
#include "scheduler/state/standby_holders.hpp"
#include "tests/engine/planner_fixture.hpp"
#include "tests/torch_catch.hpp"

#include <algorithm>

namespace troupe::engine {
namespace {

using Fixture = PlannerFixture;

TEST_CASE("nodes share out who measures what of a batch", "[engine]") {
  Fixture fixture;
  const auto orders = fixture.planner.measures(1);
  REQUIRE(orders.size() == 4);
  std::vector<std::int64_t> positions;
  for (const auto& [node, order] : orders) {
    CHECK(order.measure);
    CHECK(order.samples.size() <= 2);
    CHECK_FALSE(order.samples.empty());
    for (const auto& sample : order.samples) {
      positions.push_back(sample.position);
      CHECK((sample.media == all_encoders(fixture.plan.model)));
      CHECK(sample.text);
    }
  }
  std::sort(positions.begin(), positions.end());
  CHECK((positions == std::vector<std::int64_t>{6, 7, 8, 9, 10, 11}));
}

TEST_CASE("media go to nodes where encoders begin, text to the llm's ends", "[engine]") {
  Fixture fixture;
  const auto orders = measured(fixture.planner, fixture.setup, 0);

  REQUIRE(orders.size() == 4);
  const std::vector<ModuleId> vision{ModuleId{0}};
  CHECK_FALSE(orders.at(NodeId{0}).measure);
  // Sample 1 has no picture: nobody looks for one.
  CHECK((orders.at(NodeId{0}).samples ==
         std::vector<OrderedSample>{{0, vision, false}, {2, vision, false}}));
  CHECK((orders.at(NodeId{2}).samples ==
         std::vector<OrderedSample>{{3, {}, true}, {4, vision, true}, {5, {}, true}}));
  CHECK((orders.at(NodeId{3}).samples ==
         std::vector<OrderedSample>{{3, {}, true}, {4, {}, true}, {5, {}, true}}));
}

TEST_CASE("of several encoder replicas each decodes what it encodes, and nothing twice",
          "[engine]") {
  auto job = tiny_job();
  job.parallel.layout = {};
  job.parallel.layout.replicas = {{{"vision"}, {{0, 0, {{"vision", {}}}}}},
                                  {{"vision"}, {{1, 0, {{"vision", {}}}}}},
                                  {{"llm"}, {{2, 0, {{"llm", {}}}}}},
                                  {{"llm"}, {{3, 0, {{"llm", {}}}}}}};
  Fixture fixture{prepare(job).value()};
  const auto orders = measured(fixture.planner, fixture.setup, 0);
  std::vector<std::int64_t> pictures, texts;
  for (const auto& [node, order] : orders)
    for (const auto& sample : order.samples) {
      if (!sample.media.empty()) pictures.push_back(sample.position);
      if (sample.text) texts.push_back(sample.position);
      CHECK(sample.text == (node >= NodeId{2}));
    }
  std::sort(pictures.begin(), pictures.end());
  std::sort(texts.begin(), texts.end());
  CHECK((pictures == std::vector<std::int64_t>{0, 2, 4}));
  CHECK((texts == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5}));
}

TEST_CASE("a node decodes a sample once, however many pieces of it it encodes", "[engine]") {
  auto job = tiny_job();
  job.balancer.exchange = "per-phase";
  Fixture fixture{prepare(job).value()};
  std::vector<BatchReport> lengths;
  for (const auto& [node, order] : fixture.planner.measures(0)) {
    lengths.push_back(tiny_lengths(fixture.setup, order));
    for (SampleReport& sample : lengths.back().samples)
      if (sample.position == 0) sample.media[0].items.resize(12, sample.media[0].items[0]);
  }
  const auto orders = fixture.planner.orders(0, lengths).value();
  const std::vector<ModuleId> vision{ModuleId{0}};
  std::size_t decoding = 0;
  for (const auto& [node, order] : orders) {
    const auto own = std::count_if(order.samples.begin(), order.samples.end(),
                                   [](const auto& sample) { return sample.position == 0; });
    CHECK(own <= 1);
    for (const auto& sample : order.samples)
      if (sample.position == 0 && !sample.media.empty()) {
        CHECK((sample.media == vision));
        ++decoding;
      }
  }
  CHECK(decoding == 2);  // Nodes 0 and 2 have an encoder each.
}

TEST_CASE("a batch that cannot be planned is refused when it is due, not before", "[engine]") {
  Fixture fixture;
  const auto device = scheduler::find_device("H100-80G").value();
  PlanningCosts costs =
      *planning_costs(fixture.setup, computed_profile(fixture.setup, device), {}).value();
  costs.device_memory = Bytes{1};
  fixture.setup.costs = std::make_shared<const PlanningCosts>(costs);
  BatchPlanner planner(fixture.plan, planner_options(fixture.setup, 16, 1));
  const auto orders = measured(planner, fixture.setup, 0);
  REQUIRE(orders.size() == 4);
  for (const auto& [node, order] : orders) CHECK(order.samples.empty());
  CHECK_FALSE(planner.take_refused());
  const auto planned = planner.plan(0, {});
  REQUIRE_FALSE(planned.ok());
  CHECK(planned.error().code == Errc::infeasible);
  // Another layout may have room for it.
  const auto refused = planner.take_refused();
  REQUIRE(refused);
  CHECK(refused->batch == 0);
  CHECK(refused->epoch_number == 1);
  CHECK(refused->why == planned.error());
  REQUIRE(refused->samples.size() == 6);
  CHECK(refused->samples[5].id == "s5");
  CHECK_FALSE(planner.take_refused());
}

TEST_CASE("memory of a stage has to hold the rows that come to it", "[engine]") {
  Fixture fixture;
  const auto device = scheduler::find_device("H100-80G").value();
  PlanningCosts costs =
      *planning_costs(fixture.setup, computed_profile(fixture.setup, device), {}).value();
  costs.device_memory = Bytes{std::int64_t{1} << 30};
  fixture.setup.costs = std::make_shared<const PlanningCosts>(costs);
  const auto has_room = [&] {
    BatchPlanner planner(fixture.plan, planner_options(fixture.setup, 16, 1));
    const auto orders = measured(planner, fixture.setup, 0);
    return !orders.at(NodeId{0}).samples.empty();  // Else nobody is asked to decode anything.
  };
  CHECK(has_room());
  // Four rows of a picture: 4 GiB each.
  fixture.plan.model.modules[1].output_width = std::int64_t{1} << 30;
  CHECK_FALSE(has_room());
}

TEST_CASE("a node that only stands by decodes nothing and is asked all the same", "[engine]") {
  Fixture fixture;
  fixture.plan.devices.push_back({NodeId{4}, 0});
  fixture.plan = scheduler::add_standbys(fixture.plan, {3, Dtype::fp64}).value();
  BatchPlanner planner(fixture.plan, planner_options(fixture.setup, 16, 1));
  const auto measures = planner.measures(0);
  CHECK(measures.size() == 5);  // It may measure, though.
  const auto orders = measured(planner, fixture.setup, 0);
  REQUIRE(orders.size() == 5);
  CHECK(orders.at(NodeId{4}).samples.empty());
  CHECK_FALSE(orders.at(NodeId{0}).samples.empty());
}

TEST_CASE("each encoder's media go to its own node, and the reports join", "[engine]") {
  job::Job job = tiny_job();
  job.balancer.dealing = "count";
  ModuleConfig audio{"audio", ModuleKind::encoder, "whisper", "audio_projector", false, {}, 0.02,
                     {}};
  audio.config = models::AudioConfig{
      .encoder_layers = 1, .d_model = 16, .encoder_attention_heads = 2, .encoder_ffn_dim = 16};
  ModuleConfig projector = job.modules[1];
  projector.name = "audio_projector";
  job.modules.insert(job.modules.begin() + 1, {audio, projector});
  job.parallel.layout.pipelines = {
      {{0, 0, {{"vision", {}}}}, {1, 0, {{"audio", {}}}}, {2, 0, {{"llm", {}}}}}};
  job.cluster.nodes = job.cluster.local_nodes = 3;
  Fixture fixture{prepare(job).value()};

  // Sample 0 has a picture of 16 patches, which node 0 finds, and a clip of 5 frames, which node 1
  // finds; 4 and 3 rows replace their placeholders. The others have the clip too.
  const auto with_clip = [](std::int64_t position) {
    auto sample = tiny_sample(position);
    sample.audio.push_back({{std::vector<float>(5 * 80), 5, 0}});
    sample.llm_tokens += 3;
    return sample;
  };
  const auto measures = fixture.planner.measures(0);
  std::vector<BatchReport> lengths;
  for (const auto& [node, order] : measures) {
    std::vector<data::MeasureOutcome> outcomes;
    for (const auto& wanted : order.samples)
      outcomes.emplace_back(data::shape_of(with_clip(wanted.position), fixture.setup.data,
                                           media_modules(fixture.setup)));
    lengths.push_back(report_lengths(node, order, outcomes, 1));
  }
  const auto orders = fixture.planner.orders(0, lengths).value();
  CHECK((orders.at(NodeId{0}).samples[0] == OrderedSample{0, {ModuleId{0}}, false}));
  CHECK((orders.at(NodeId{1}).samples[0] == OrderedSample{0, {ModuleId{1}}, false}));
  CHECK((orders.at(NodeId{2}).samples[0] == OrderedSample{0, {}, true}));
  const auto modules = media_modules(fixture.setup);
  CHECK((wanted_parts(orders.at(NodeId{1}).samples[0], modules) == data::WantedParts{0, 1, false}));

  std::vector<BatchReport> found;
  for (const auto& [node, order] : orders) {
    std::vector<data::DecodeOutcome> outcomes;
    for (const auto& wanted : order.samples) {
      auto sample = with_clip(wanted.position);
      if (node != NodeId{0}) sample.images.clear();
      if (node != NodeId{1}) sample.audio.clear();
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
  REQUIRE(fixture.planner.orders(1, lengths).ok() == false);  // Of another batch.
  REQUIRE(fixture.planner.orders(0, lengths).ok());
  const std::vector<BatchReport> fewer{found[0], found[2]};
  CHECK_FALSE(fixture.planner.plan(0, fewer).ok());
}

}  // namespace
}  // namespace troupe::engine
