#include "scheduler/layout/auto_layout.hpp"
#include "scheduler/iteration/stage_graph.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <limits>
#include <random>

#include "scheduler/check/check_plan.hpp"
#include "scheduler/iteration/stage_graph.hpp"
#include "tests/scheduler/example_models.hpp"
#include "tests/scheduler/layout_requests.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
using testing::draw;
using testing::FourLayers;
using testing::model_of;
using testing::narrow_llm;
using testing::request_on;
using testing::sample;
using testing::text;
using testing::text_llm;
using testing::vision_audio_llm;

TEST_CASE("two whole pipelines beat one of two stages", "[scheduler]") {
  // Whole models: 4 layers x 3 ms (the first has no input gradient: 2 ms), one sample each: 11 ms.
  // One pipeline is best cut into 3 and 1 layers, forwards 3 and 1 ms, backwards 5 and 2: stage 1
  // runs F0 3-4, B0 4-6, F1 6-7, B1 7-9, stage 0 F0, F1 to 6, B0 6-11, B1 11-16. (Halves: 17 ms.)
  FourLayers four;
  const auto made = four.choose();
  CHECK(made.plan.pipelines.size() == 2);
  CHECK(made.predicted.step_ms == Approx(11));
  CHECK(made.predicted.bubble == Approx(0).margin(1e-9));
  REQUIRE(made.reasons.size() >= 4);
  CHECK(made.reasons[0].choice == "2 pipelines");
  CHECK_THAT(made.reasons[0].why, ContainsSubstring("time per step with 1: +45 %"));  // 16 / 11
}

TEST_CASE("a judge has the last word among the best of each kind", "[scheduler]") {
  FourLayers four;
  std::size_t asked = 0;
  four.request.judge = [&](const ParallelPlan& plan) {
    ++asked;
    PredictedStep step;
    step.step_ms = plan.pipelines.size() == 1 ? 7 : 8;
    step.stage_ms.assign(plan.stages.size(), 1);
    step.peak_memory_bytes.assign(plan.devices.size(), 1);
    return Result<PredictedStep>(step);
  };
  auto made = four.choose();
  CHECK(made.plan.pipelines.size() == 1);
  CHECK(made.predicted.step_ms == 7);
  CHECK(made.judged == static_cast<std::int64_t>(asked));
  CHECK(asked >= 2);
  CHECK(asked <= kJudged);
  CHECK_THAT(made.reasons[0].why, ContainsSubstring("2: +14 %"));  // 8 / 7

  const auto equal = four.request.judge;
  four.request.judge = [&](const ParallelPlan& plan) {
    return plan.pipelines.size() == 1
               ? Result<PredictedStep>(Error{Errc::infeasible, "too large", "memory", ""})
               : equal(plan);
  };
  CHECK(four.choose().plan.pipelines.size() == 2);
  four.request.judge = [](const ParallelPlan&) {
    return Result<PredictedStep>(Error{Errc::not_found, "no such policy", "", ""});
  };
  CHECK(four.refuse().message == "no such policy");
}

TEST_CASE("memory decides before time", "[scheduler]") {
  FourLayers four;
  // Layers of 10 to 13 elements, 16 bytes each: 736 bytes in all, and one byte of activations per
  // layer and microbatch in flight, 4 per message held. Half of it fits into 450.
  four.request.device_memory = Bytes{450};
  const auto made = four.choose();
  CHECK(made.plan.pipelines.size() == 1);
  CHECK(made.predicted.step_ms == Approx(17));
  for (const double bytes : made.predicted.peak_memory_bytes) CHECK(bytes <= 450);
}

TEST_CASE("a frozen encoder without backward gets more layers", "[scheduler]") {
  // Vision 4 layers, frozen: 1 ms each; projector 1 ms forward, 1 ms weights; llm 6 layers of 3 ms.
  auto graph = vision_audio_llm();
  graph.modules.erase(graph.modules.begin() + 2, graph.modules.begin() + 4);
  graph.modules[1].next = {ModuleId{2}};
  graph.modules[0].freeze = true;
  const auto model = model_of(graph, {1});
  AutoLayoutRequest request;
  request.model = &model;
  auto shape = sample(0, 0, 4);
  shape.media = {{ModuleId{0}, {{4, 4, 4, 2, 2}}}};
  shape.llm_tokens = 4;
  shape.trained_tokens = 4;
  request.samples = {shape};
  request.cluster = {2, 1};
  request.global_batch = 8;
  request.microbatches = 8;
  request.pins["llm"].dp = 1;
  const auto made = auto_layout(request).value();
  // Work per token: 4 + 2 + 18 = 24. An equal share is the frozen encoder, its projector and two
  // layers of the llm: forward 28 and backward 20 ms a sample, then 16 and 32: 28 + 8 x 48 + 20.
  // As if all were trained, the encoder's share would seem to be 15 of 33: one layer of the llm.
  const auto with_llm_layers = [&](int count) {
    const HandLayout layout{{{{0, 0, {{"vision", {}}}},
                              {0, 0, {{"llm", LayerRange{0, count}}}},
                              {1, 0, {{"llm", LayerRange{count, 6}}}}}}};
    return predict_step(place_by_hand(graph, layout, {2, 1}).value(), request).value().step_ms;
  };
  CHECK(with_llm_layers(2) == Approx(432));
  CHECK(with_llm_layers(1) > 432);
  CHECK(made.predicted.step_ms <= 432);
}

/// The least step time over every way to cut, by the simulator.
double brute_force(const AutoLayoutRequest& request, const std::vector<HandLayout>& layouts) {
  double best = std::numeric_limits<double>::infinity();
  for (const auto& layout : layouts) {
    const auto plan = place_by_hand(request.model->graph(), layout, request.cluster);
    if (!plan.ok()) continue;
    best = std::min(best, predict_step(plan.value(), request).value().step_ms);
  }
  return best;
}

/// All cuts of `count` llm layers on devices [first, first + devices).
std::vector<std::vector<HandStage>> all_cuts(int count, int first, int devices, int from = 0) {
  if (devices == 1) return {{{first, 0, {{"llm", LayerRange{from, count}}}}}};
  std::vector<std::vector<HandStage>> list;
  for (int cut = from + 1; cut <= count - devices + 1; ++cut)
    for (auto rest : all_cuts(count, first + 1, devices - 1, cut)) {
      rest.insert(rest.begin(), {first, 0, {{"llm", LayerRange{from, cut}}}});
      list.push_back(std::move(rest));
    }
  return list;
}

TEST_CASE("no cut of a small chain beats the choice", "[scheduler][property]") {
  constexpr int kLayers = 6;
  for (unsigned seed = 0; seed < 12; ++seed) {
    std::mt19937 random(seed);
    std::vector<double> weights;
    for (int i = 0; i < kLayers; ++i) weights.push_back(0.1 * draw(random, 1, 30));
    const auto model = model_of(text_llm(kLayers), weights);
    AutoLayoutRequest request;
    request.model = &model;
    for (int i = 0; i < 5; ++i) request.samples.push_back(text(draw(random, 1, 40)));
    request.cluster = {3, 1};
    request.global_batch = draw(random, 3, 9);
    request.microbatches = draw(random, 1, 4);
    request.prediction.speeds.network = {0.1 * draw(random, 0, 20), 0};
    std::vector<HandLayout> layouts;
    for (auto& one : all_cuts(kLayers, 0, 3)) layouts.push_back({{one}});
    for (auto& two : all_cuts(kLayers, 0, 2))
      for (auto& one : all_cuts(kLayers, 2, 1)) layouts.push_back({{two, one}});
    layouts.push_back(
        {{all_cuts(kLayers, 0, 1)[0], all_cuts(kLayers, 1, 1)[0], all_cuts(kLayers, 2, 1)[0]}});
    INFO("seed " << seed);
    CHECK(auto_layout(request).value().predicted.step_ms ==
          Approx(brute_force(request, layouts)).epsilon(1e-9));
  }
}

TEST_CASE("no cut of encoder and llm on two devices beats the choice", "[scheduler][property]") {
  auto graph = vision_audio_llm();
  graph.modules.erase(graph.modules.begin() + 2, graph.modules.begin() + 4);
  graph.modules[1].next = {ModuleId{2}};
  for (unsigned seed = 0; seed < 12; ++seed) {
    std::mt19937 random(seed);
    graph.modules[0].freeze = seed % 3 == 0;
    std::vector<double> weights;
    for (int i = 0; i < 11; ++i) weights.push_back(0.1 * draw(random, 1, 30));
    const auto model = model_of(graph, weights);
    AutoLayoutRequest request;
    request.model = &model;
    for (int i = 0; i < 4; ++i) request.samples.push_back(sample(i % 3, 0, draw(random, 3, 30)));
    request.cluster = {2, 1};
    request.global_batch = 4;
    request.microbatches = draw(random, 1, 4);
    request.pins["vision"].dp = 1;
    // Vision cut at a, llm at b: before on device 0, behind on device 1.
    std::vector<HandLayout> layouts;
    for (int a = 0; a <= 4; ++a)
      for (int b = 0; b <= 6; ++b) {
        HandLayout layout{{{}}};
        const auto add = [&](int device, const char* name, int begin, int end) {
          if (begin < end)
            layout.pipelines[0].push_back({device, 0, {{name, LayerRange{begin, end}}}});
        };
        add(0, "vision", 0, a);
        add(1, "vision", a, 4);
        add(0, "llm", 0, b);
        add(1, "llm", b, 6);
        layouts.push_back(std::move(layout));
      }
    INFO("seed " << seed);
    CHECK(auto_layout(request).value().predicted.step_ms <=
          brute_force(request, layouts) * (1 + 1e-9));
  }
}

TEST_CASE("plans are sound, whole and repeatable", "[scheduler][property]") {
  const auto model = model_of(vision_audio_llm(), {1, 2, 3, 1, 2});
  for (std::int32_t devices = 1; devices <= 7; ++devices)
    for (const std::int32_t tolerance : {0, 1}) {
      AutoLayoutRequest request = request_on(model, devices);
      request.fault_tolerance = std::min(tolerance, devices - 1);
      const auto made = auto_layout(request).value();
      CHECK((auto_layout(request).value().layout == made.layout));
      // What is printed is what is planned, standby holders included.
      const Tolerance wanted{request.fault_tolerance, Dtype::fp32};
      CHECK(
          (place_by_hand(model.graph(), made.layout, request.cluster, IdleDevices::refused, wanted)
               .value() == made.plan));
    }
}

TEST_CASE("pins are kept", "[scheduler]") {
  const auto model = model_of(vision_audio_llm(), {1});
  AutoLayoutRequest request;
  request.model = &model;
  request.samples = {sample(1, 1), sample(2, 0)};
  request.cluster = {4, 1};
  request.global_batch = 8;
  request.microbatches = 4;
  for (const std::int32_t dp : {1, 2})
    for (std::int32_t pp = 1; pp <= 4 / dp; ++pp) {
      // Pinned alike, all modules are in pipelines.
      for (const char* name : {"vision", "audio", "llm"}) request.pins[name].dp = dp;
      request.pins["llm"].pp = pp;
      const auto made = auto_layout(request).value();
      INFO("dp " << dp << " pp " << pp);
      CHECK(made.plan.pipelines.size() == static_cast<std::size_t>(dp));
      const auto stages = std::count_if(
          made.plan.stages.begin(), made.plan.stages.end(),
          [&](const Stage& s) { return s.runs.front().module == model.graph().llm(); });
      CHECK(stages == dp * pp);
    }
}

TEST_CASE("a cluster that is only planned for may split layers", "[scheduler]") {
  // Layers of 160 bytes and more beside messages of 4, a device holds 150: only tp 2 fits.
  const auto model = model_of(narrow_llm(), {1}, {{}, {2, 1}});
  AutoLayoutRequest request;
  request.model = &model;
  request.samples = {text(1)};
  request.cluster = {2, 4};
  request.global_batch = 4;
  request.microbatches = 2;
  request.device_memory = Bytes{150};
  request.planned_only = true;
  const auto made = auto_layout(request).value();
  CHECK((module_degrees(made.plan) == std::vector<Parallelism>{{2, 1}}));
  for (const Stage& stage : made.plan.stages) {
    REQUIRE(stage.devices.size() == 2);
    const DeviceSlot first = made.plan.devices[stage.devices[0].index()];
    CHECK((made.plan.devices[stage.devices[1].index()] ==
           DeviceSlot{first.node, first.local_index + 1}));
  }
  // What the job file can say of it is the same plan.
  CHECK(place_by_hand(model.graph(), made.layout, {2, 4}, IdleDevices::left_out).value() ==
        made.plan);
}

TEST_CASE("devices that bring less than a twentieth of a step stay idle", "[scheduler]") {
  // One microbatch of one sample: a cut of a pipeline only adds messages, so one device is enough.
  FourLayers four;
  four.request.cluster = {1, 4};
  four.request.planned_only = true;
  four.request.samples = {text(1)};
  four.request.global_batch = four.request.microbatches = 1;
  auto made = four.choose();
  CHECK(made.plan.devices.size() == 1);
  CHECK(made.reasons.back().choice == "1 of 4 devices");
  CHECK_THAT(made.reasons.back().why, ContainsSubstring("no more than with fewer"));

  // Layers of 100, 100, 100 and 0.1 ms, many microbatches: a device of its own for the last one
  // brings a thousandth, one for each of the others a third.
  const auto uneven = model_of(narrow_llm(), {100, 100, 100, 0.1});
  four.request.model = &uneven;
  four.request.pins["llm"].dp = 1;
  four.request.global_batch = four.request.microbatches = 30;
  made = four.choose();
  CHECK(made.plan.devices.size() == 3);
  CHECK(made.reasons.back().choice == "3 of 4 devices");
}

TEST_CASE("of cuts that are equally fast the more even ones are chosen", "[scheduler]") {
  // Layers of 16, 6, 3 and 3 ms in all. One sample, so every cut takes their sum; devices that took
  // what fits below 16 would work 16, 9 and 3.
  const auto model = model_of(narrow_llm(), {8, 2, 1, 1});
  FourLayers four;
  four.request.cluster = {3, 1};
  four.request.model = &model;
  four.request.global_batch = four.request.microbatches = 1;
  const auto made = four.choose();
  REQUIRE(made.layout.pipelines.size() == 1);
  CHECK((made.layout.pipelines[0][1].runs[0].layers == LayerRange{1, 2}));
}

}  // namespace
}  // namespace troupe::scheduler
