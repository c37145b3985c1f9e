// Layouts whose encoders stand on the llm's devices: when they are chosen, and what of it is told.

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <random>
#include <set>

#include "scheduler/check/check_plan.hpp"
#include "scheduler/iteration/plan_iteration.hpp"
#include "scheduler/layout/auto_layout.hpp"
#include "scheduler/layout/layout_score.hpp"
#include "scheduler/layout/replica_candidates.hpp"
#include "tests/scheduler/example_models.hpp"
#include "tests/scheduler/layout_requests.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
using testing::draw;
using testing::layers;
using testing::model_of;
using testing::Numbers;
using testing::numbers_of;

/// vision of one layer before an llm of some of 4 ms, all one element wide, 16 bytes of state for
/// each of ten parameters. A sample has a row in both: `ms` forward and as much backward in vision,
/// 4 and 8 ms in each layer of the llm. Four nodes of one device, a microbatch for each of eight
/// samples.
struct OneEncoder {
  CostModel model;
  AutoLayoutRequest request;

  explicit OneEncoder(double ms, int llm_layers = 2)
      : model(model_of(graph(llm_layers), weights(ms, llm_layers))) {
    request.model = &model;
    request.samples = {sample()};
    request.cluster = {4, 1};
    request.global_batch = request.microbatches = 8;
    request.schedule = "three-phase";
  }
  OneEncoder(const OneEncoder&) = delete;
  OneEncoder& operator=(const OneEncoder&) = delete;

  static SampleShape sample() {
    SampleShape shape;
    shape.media = {{ModuleId{0}, {{1, 1, 1, 1, 1}}}};
    shape.llm_tokens = shape.trained_tokens = 1;
    return shape;
  }
  static ModelGraph graph(int llm_layers) {
    ModelGraph graph;
    graph.modules = {
        {"vision", ModuleKind::encoder, false, {ModuleId{1}}, layers("vision", 1), 1, 1},
        {"llm", ModuleKind::llm, false, {}, layers("llm", llm_layers), 1, 1}};
    for (auto& module : graph.modules)
      for (auto& layer : module.layers) layer.parameter_elements = 10;
    return graph;
  }
  static std::vector<double> weights(double ms, int llm_layers) {
    std::vector<double> weights(static_cast<std::size_t>(llm_layers) + 1, 4);
    weights.front() = ms;
    return weights;
  }
  AutoLayout choose() const { return auto_layout(request).value(); }
  std::string why(const std::string& choice) const {
    for (const auto& reason : choose().reasons)
      if (reason.choice == choice) return reason.why;
    return {};
  }
  /// What the simulator says of replicas: encoders each on some devices, llms each on some.
  double step_of(const std::vector<std::vector<std::int32_t>>& encoders,
                 const std::vector<std::vector<std::int32_t>>& llms) const {
    HandLayout layout;
    const auto add = [&](const std::string& name, const std::vector<std::int32_t>& devices) {
      auto& replica = layout.replicas.emplace_back();
      replica.modules = {name};
      const auto count =
          static_cast<std::int32_t>(model.graph().at(model.graph().find(name)).layers.size());
      const auto stages = static_cast<std::int32_t>(devices.size());
      for (std::int32_t s = 0; s < stages; ++s)
        replica.stages.push_back(
            {devices[static_cast<std::size_t>(s)],
             0,
             {{name, LayerRange{s * count / stages, (s + 1) * count / stages}}}});
    };
    for (const auto& devices : encoders) add("vision", devices);
    for (const auto& devices : llms) add("llm", devices);
    const auto plan = place_by_hand(model.graph(), layout, request.cluster, IdleDevices::left_out);
    return predict_step(plan.value(), request).value().step_ms;
  }
};

TEST_CASE("encoders go onto the llm's devices where that takes less time", "[scheduler]") {
  // 330 bytes hold a layer of both, and not the whole model. Two samples for each of four encoders,
  // 18 ms forward; four for each llm of two stages, (4 + 1) x 12 ms; 18 ms backward.
  OneEncoder one(9);
  one.request.device_memory = Bytes{350};
  const auto made = one.choose();
  CHECK(numbers_of(made.plan) == Numbers{{"vision", 4}, {"llm", 2}});
  CHECK(encoder_placement(made.plan) == EncoderPlacement::shared);
  CHECK(made.plan.devices.size() == 4);
  CHECK(made.predicted.step_ms == Approx(96));
  CHECK(made.reasons[0].choice == "4 replicas of vision, 2 of llm, on the same devices");
  // No layout with an encoder's device of its own is as fast: of those with two encoders ...
  CHECK(one.step_of({{0}, {1}}, {{2, 3}}) > 96);
  CHECK(one.step_of({{0}, {1}, {2}}, {{3}}) > 96);
  REQUIRE(made.other_placement);
  CHECK(made.other_placement->placement != EncoderPlacement::shared);
  CHECK(made.other_placement->fits);
  CHECK(made.other_placement->step_ms > made.placed_ms);
  CHECK_THAT(one.why("encoders on devices of the llm"),
             ContainsSubstring("time per step with encoders ") && ContainsSubstring(": +") &&
                 ContainsSubstring(" of it, here for "));
  // In a schedule without phases they would wait for one another between microbatches.
  one.request.schedule = "1f1b";
  CHECK(numbers_of(one.choose().plan) != Numbers{{"vision", 4}, {"llm", 2}});
}

TEST_CASE("encoders stay apart where they would cost the llm more", "[scheduler]") {
  // Sums of gradients take a millisecond per byte: two llm replicas of two stages, which four
  // devices that all have one ask of three layers, take 40 x 2 / 2 and more. One llm of three
  // stages beside one encoder has nothing to sum up: 1 ms of vision, (8 + 2) x 12 ms of the llm,
  // and the last millisecond of vision.
  OneEncoder light(1, 3);
  light.request.prediction.speeds.reduce_gigabytes_per_s = 1e-6;
  auto made = light.choose();
  CHECK(encoder_placement(made.plan) == EncoderPlacement::apart);
  CHECK(made.predicted.step_ms == Approx(122));
  REQUIRE(made.other_placement);
  CHECK(made.other_placement->placement == EncoderPlacement::shared);
  CHECK(made.other_placement->step_ms > 122);
  CHECK(light.step_of({{0}, {1}, {2}, {3}}, {{0, 1}, {2, 3}}) > 122);
  CHECK_THAT(light.why("encoders on devices of their own"),
             ContainsSubstring("with encoders on devices of the llm: +"));
  // A heavy one is worth all devices, and the sums.
  OneEncoder heavy(60, 3);
  heavy.request.prediction.speeds.reduce_gigabytes_per_s = 1e-6;
  made = heavy.choose();
  CHECK(encoder_placement(made.plan) == EncoderPlacement::shared);
  CHECK(made.predicted.step_ms < heavy.step_of({{0}}, {{1, 2, 3}}));
  CHECK(made.predicted.step_ms < heavy.step_of({{0}, {1}}, {{2, 3}}));
}

TEST_CASE("what does not fit together stays apart, and the plan says so", "[scheduler]") {
  // A layer of the llm and vision are 320 bytes of state.
  OneEncoder one(9);
  one.request.device_memory = Bytes{310};
  const auto made = one.choose();
  CHECK(encoder_placement(made.plan) == EncoderPlacement::apart);
  for (const double bytes : made.predicted.peak_memory_bytes) CHECK(bytes <= 310);
}

TEST_CASE("encoders go onto the llm's devices where offloading makes them fit", "[scheduler]") {
  // Of two devices each has an llm, and one the encoder of both: 320 bytes of state, 68 of the llm,
  // and 64 of vision or an output of 4.
  testing::OneOfEach one;
  one.request.cluster = {2, 1};
  one.request.pins["vision"].dp = 1;
  one.request.pins["llm"].dp = 2;
  one.request.device_memory = Bytes{400};
  CHECK(auto_layout(one.request).error().code == Errc::infeasible);
  one.request.offload_encoders = true;
  const auto made = auto_layout(one.request);
  REQUIRE(made.ok());
  CHECK(numbers_of(made.value().plan) == Numbers{{"vision", 1}, {"llm", 2}});
  CHECK(encoder_placement(made.value().plan) == EncoderPlacement::shared);
  for (const double bytes : made.value().predicted.peak_memory_bytes) CHECK(bytes <= 400);
}

TEST_CASE("phases take the memory of a window, and the time of all windows", "[scheduler]") {
  OneEncoder one(0.9);
  one.request.samples[0].media[0].items = {
      {10, 10, 1, 1, 1}};  // Ten bytes of activations in vision.
  one.request.pins["vision"].dp = 4;
  one.request.pins["llm"].dp = 2;
  const double whole = one.choose().predicted.step_ms;
  CHECK(whole == Approx(96));
  // One microbatch of vision and of each stage of the llm at a time: 9 + 2 x 24 + 9 ms, twice.
  one.request.max_in_flight = 1;
  CHECK(one.choose().predicted.step_ms == Approx(132));
  one.request.max_in_flight = 0;
  // The less memory, the narrower are windows: first both of vision, then one of it and the llm's
  // two in flight, 9 + (2 + 1) x 12 + 9 ms, twice; in the end not even one of each fits. At a few
  // sizes a window that fits by rows has no room for the gradients that come for them.
  double before = whole;
  bool ones = false;
  for (std::int64_t bytes = 400; bytes >= 320; bytes -= 2) {
    INFO(bytes << " bytes");
    one.request.device_memory = Bytes{bytes};
    const auto made = auto_layout(one.request);
    CHECK((made.ok() || made.error().code == Errc::infeasible));
    if (bytes > 380) CHECK(made.value().predicted.step_ms == Approx(whole));
    if (bytes <= 330) CHECK_FALSE(made.ok());
    if (!made.ok()) continue;
    for (const double peak : made.value().predicted.peak_memory_bytes)
      CHECK(peak <= static_cast<double>(bytes));
    CHECK(made.value().predicted.step_ms >= before - 1e-9);
    before = made.value().predicted.step_ms;
    ones = ones || before == Approx(108);
  }
  CHECK(ones);
}

TEST_CASE("an llm that shares its devices' memory is estimated to be held back", "[scheduler]") {
  // Four encoders, an llm of eight layers on four devices, 24 ms each, 32 microbatches.
  OneEncoder one(1, 8);
  one.request.global_batch = one.request.microbatches = 32;
  const auto estimate = [&](std::int64_t bytes) {
    one.request.device_memory = Bytes{bytes};
    LayoutScorer scorer(one.request);
    return replica_candidates(one.request, scorer, Sharing::colocated, 1, 1)
        .value()
        .front()
        .estimate_ms;
  };
  const double roomy = estimate(700);
  CHECK(roomy == Approx(8 * 2 + 31 * 24 + 96));
  // 480 are state. On the first device each microbatch of vision is a byte, and four of them rows
  // of four bytes that wait for the llm: 17. Beside four microbatches of the llm, two bytes without
  // their rows, 144 are all eight, one less seven.
  CHECK(estimate(480 + 144) == Approx(roomy));
  CHECK(estimate(480 + 143) == Approx(roomy + 72));
  // Four in flight leave no room for one of vision; three do: eight windows. On the next device the
  // llm's three take six bytes each, and one of vision five with its gradients.
  CHECK(estimate(480 + 23) == Approx(roomy + 7 * 72 + (4.0 / 3 - 1) * 24 * 24));
}

TEST_CASE("pins of numbers are kept on shared devices", "[scheduler]") {
  OneEncoder one(9);
  one.request.pins["vision"].dp = 2;
  one.request.pins["llm"].dp = 4;
  auto made = one.choose();
  CHECK(numbers_of(made.plan) == Numbers{{"vision", 2}, {"llm", 4}});
  // Spread over the nodes: vision has one layer, and fills two of four places.
  CHECK(made.plan.node_of(made.plan.replicas[0].stages[0]) == NodeId{0});
  CHECK(made.plan.node_of(made.plan.replicas[1].stages[0]) == NodeId{2});
  one.request.pins["vision"].dp = 4;
  one.request.pins["llm"].dp = 2;
  CHECK(numbers_of(one.choose().plan) == Numbers{{"vision", 4}, {"llm", 2}});
  one.request.schedule = "1f1b";
  const auto refused = auto_layout(one.request).error();
  CHECK(refused.code == Errc::infeasible);
  CHECK_THAT(refused.message, ContainsSubstring("share none under 1f1b"));
  CHECK_THAT(refused.fix, ContainsSubstring("scheduler.schedule = \"three-phase\""));
  one.request.schedule = "dip";
  CHECK(numbers_of(one.choose().plan) == Numbers{{"vision", 4}, {"llm", 2}});
  one.request.pins["vision"].dp = 5;
  CHECK(auto_layout(one.request).error().code == Errc::infeasible);
}

TEST_CASE("narrow encoders stand side by side on a wide stage of the llm", "[scheduler]") {
  OneEncoder one(9);
  const auto model =
      model_of(testing::split_by_ranks(OneEncoder::graph(2)), {9, 4, 4}, {{1, 1}, {2, 1}});
  one.request.model = &model;
  one.request.cluster = {2, 2};
  one.request.planned_only = true;
  one.request.pins["vision"] = {1, {}, {}, 4};
  one.request.pins["llm"] = {2, {}, {}, 1};
  const auto made = one.choose();
  CHECK(numbers_of(made.plan) == Numbers{{"vision", 4}, {"llm", 1}});
  std::set<std::pair<NodeId, std::int32_t>> encoders;
  for (const Stage& stage : made.plan.stages) {
    const bool llm = stage.runs.front().module == ModuleId{1};
    CHECK(stage.grid.tp == (llm ? 2 : 1));
    const DeviceSlot& slot = made.plan.devices[stage.devices.front().index()];
    if (!llm) encoders.insert({slot.node, slot.local_index});
  }
  CHECK(encoders.size() == 4);
  CHECK(made.plan.devices.size() == 4);
}

TEST_CASE("copies of encoders are spread over the places of the llm", "[scheduler]") {
  LayoutCandidate candidate;
  candidate.colocated = true;
  candidate.parallelisms = {{1, 1}, {2, 1}};
  candidate.module_groups = {{ModuleId{0}}, {ModuleId{1}}};
  candidate.numbers = {3, 2};
  candidate.shapes = {{PipelineForm::replica, 2, {}, 0, {}}, {PipelineForm::replica, 3, {}, 0, {}}};
  candidate.shape_of = {0, 0, 0, 1, 1};
  // Six groups of two places: six of twelve are taken, from 0, 2 + 2 and 4 + 4 on.
  const auto places = copy_places(candidate);
  CHECK(places.groups == 6);
  CHECK(places.per_group == 2);
  CHECK(places.first == std::vector<std::int32_t>{0, 4, 8, 0, 6});
  CHECK(places.group_of(1, 1) == 2);
  CHECK(places.group_of(4, 2) == 5);
  candidate.colocated = false;
  CHECK(copy_places(candidate).first == std::vector<std::int32_t>{0, 2, 4, 6, 9});
}

TEST_CASE("a judge compares layouts on shared devices with the others", "[scheduler]") {
  OneEncoder one(9);
  one.request.device_memory = Bytes{350};
  for (const double ms : {90.0, 110.0}) {
    one.request.judge = [ms](const ParallelPlan& plan) {
      PredictedStep step;
      const bool four = numbers_of(plan) == Numbers{{"vision", 4}, {"llm", 2}};
      step.step_ms = four ? ms : 100;
      step.stage_ms.assign(plan.stages.size(), 1);
      step.peak_memory_bytes.assign(plan.devices.size(), 1);
      return Result<PredictedStep>(step);
    };
    CHECK((numbers_of(one.choose().plan) == Numbers{{"vision", 4}, {"llm", 2}}) == (ms == 90));
  }
}

TEST_CASE("a model without encoders has them nowhere", "[scheduler]") {
  testing::FourLayers four;
  four.request.schedule = "three-phase";
  CHECK_FALSE(encoder_placement(four.choose().plan).has_value());
  CHECK_FALSE(four.choose().other_placement.has_value());
  CHECK_FALSE(allows_colocated(four.request));
}

TEST_CASE("what is chosen on shared devices is sound and the best of its kinds",
          "[scheduler][property]") {
  int shared = 0, colocated = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const bool few = seed % 2 == 1;  // Layers; no device has room for all of them.
    auto graph = few ? OneEncoder::graph(2) : testing::vision_audio_llm();
    std::vector<double> weights;
    if (few) weights = OneEncoder::weights(draw(random, 2, 20), 2);
    for (int i = 0; i < 15 && !few; ++i) weights.push_back(0.1 * draw(random, 1, 30));
    graph.modules[0].freeze = seed % 5 == 0;
    const auto model = model_of(graph, weights);
    AutoLayoutRequest request;
    request.model = &model;
    for (int i = 0; i < 6; ++i)
      request.samples.push_back(few ? OneEncoder::sample()
                                    : testing::sample(draw(random, 0, 3), draw(random, 0, 2)));
    request.cluster =
        few ? ClusterShape{4, 1} : ClusterShape{draw(random, 2, 5), draw(random, 1, 2)};
    request.global_batch = draw(random, 3, 14);
    request.microbatches = few ? 8 : draw(random, 1, 4);
    request.schedule = seed % 4 < 2 ? "three-phase" : "dip";
    request.planned_only = seed % 3 == 0;
    request.prediction.speeds.network = {0.1 * draw(random, 0, 20), 0.001};
    request.device_memory = Bytes{few ? draw(random, 340, 470) : draw(random, 5000, 60'000)};
    request.seed = seed;
    INFO("seed " << seed);
    const auto made = auto_layout(request);
    request.one_number = true;
    const auto one = auto_layout(request);
    request.one_number = false;
    if (one.ok()) REQUIRE(made.ok());
    if (!made.ok()) continue;
    const auto& layout = made.value();
    if (one.ok()) CHECK(layout.predicted.step_ms <= one.value().predicted.step_ms * (1 + 1e-9));
    for (const double bytes : layout.predicted.peak_memory_bytes)
      CHECK(bytes <= static_cast<double>(request.device_memory.count()));
    if (const auto& other = layout.other_placement; other && other->fits)
      CHECK((1 - kWorthDevices) * layout.placed_ms <= other->step_ms * (1 + 1e-9));
    const auto again = predict_step(layout.plan, request);
    CHECK(again.value().step_ms == Approx(layout.predicted.step_ms));
    IterationInput input;
    input.samples = draw_batch(request.samples, request.global_batch, request.seed);
    input.schedule = request.schedule;
    input.microbatches =
        assign_by_count(layout.plan, static_cast<std::int32_t>(request.global_batch),
                        static_cast<std::int32_t>(request.microbatches));
    CHECK(check(layout.plan, plan_iteration(layout.plan, std::move(input)).value()).empty());
    shared += encoder_placement(layout.plan) == EncoderPlacement::shared ? 1 : 0;
    colocated += layout.reasons[0].choice.ends_with(", on the same devices") ? 1 : 0;
    if (!request.planned_only)
      CHECK((place_by_hand(graph, layout.layout, request.cluster, IdleDevices::refused,
                           {request.fault_tolerance, Dtype::fp32})
                 .value() == layout.plan));
  }
  INFO(shared << " shared, " << colocated << " with numbers of their own");
  CHECK(shared >= 10);  // Else the test says little.
  CHECK(colocated >= 3);
}

}  // namespace
}  // namespace troupe::scheduler
