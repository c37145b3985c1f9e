#include "scheduler/layout/replica_candidates.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <random>

#include "scheduler/check/check_plan.hpp"
#include "scheduler/iteration/plan_iteration.hpp"
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
using testing::vision_audio_llm;

/// vision and llm of one layer each, one element wide. A sample has a row in both: in vision 9 ms
/// forward and 9 backward (nothing lies before it), in the llm 4 ms forward and 8 backward.
struct TwoLayers {
  CostModel model;
  AutoLayoutRequest request;

  explicit TwoLayers(std::int32_t devices, std::int64_t samples)
      : model(model_of(graph(), {9, 4})) {
    request.model = &model;
    SampleShape shape;
    shape.media = {{ModuleId{0}, {{1, 1, 1, 1, 1}}}};
    shape.llm_tokens = shape.trained_tokens = 1;
    request.samples = {shape};
    request.cluster = {devices, 1};
    request.global_batch = samples;
    request.microbatches = samples;
  }

  static ModelGraph graph() {
    ModelGraph graph;
    graph.modules = {
        {"vision", ModuleKind::encoder, false, {ModuleId{1}}, layers("vision", 1), 1, 1},
        {"llm", ModuleKind::llm, false, {}, layers("llm", 1), 1, 1}};
    return graph;
  }
  AutoLayout choose() const { return auto_layout(request).value(); }
  Numbers numbers() const { return numbers_of(choose().plan); }
  std::string why(const std::string& choice) const {
    for (const auto& reason : choose().reasons)
      if (reason.choice == choice) return reason.why;
    return {};
  }
};

TEST_CASE("numbers that differ are chosen where they take less time", "[scheduler]") {
  // Six samples on five devices. In pipelines some device has the whole model and two samples: two
  // times 18 + 12 ms. Three encoders have two samples each and forward them by 9 and 18 ms; two
  // llms start at 9 and take three samples each in 36 ms, to 45; a backward of 9 ms is left.
  const TwoLayers two(5, 6);
  const auto made = two.choose();
  CHECK(two.numbers() == Numbers{{"vision", 3}, {"llm", 2}});
  CHECK(made.predicted.step_ms == Approx(54));
  CHECK(made.one_number_ms == Approx(60));
  CHECK(made.layout.pipelines.empty());
  CHECK(made.layout.replicas.size() == 5);
  CHECK(made.reasons[0].choice == "3 replicas of vision, 2 of llm");
  CHECK_THAT(two.why("numbers of their own"), ContainsSubstring("pipelines: +11 %"));
}

TEST_CASE("one number for all stays where others take longer", "[scheduler]") {
  // Ten samples: two for each of five whole models, 60 ms; three encoders and two llms take at
  // least 9 + 5 x 12 + 9.
  const TwoLayers two(5, 10);
  const auto made = two.choose();
  CHECK(made.plan.pipelines.size() == 5);
  CHECK(made.predicted.step_ms == Approx(60));
  CHECK_FALSE(made.one_number_ms.has_value());
  CHECK(made.reasons[0].choice == "5 pipelines");
  CHECK_THAT(two.why("one number for all"), ContainsSubstring("of llm: +"));
  TwoLayers one = two;
  one.request.model = &one.model;
  one.request.one_number = true;
  CHECK(one.choose().reasons.size() + 1 == made.reasons.size());
  CHECK((one.choose().plan == made.plan));
}

TEST_CASE("what hardly saves time does not give up pipelines", "[scheduler]") {
  // A judge that likes numbers of their own better by 1 %, and by 3 %.
  TwoLayers two(5, 10);
  for (const double ms : {99.0, 97.0}) {
    two.request.judge = [ms](const ParallelPlan& plan) {
      PredictedStep step;
      step.step_ms = plan.pipelines.size() == 1 ? ms : 100;
      step.stage_ms.assign(plan.stages.size(), 1);
      step.peak_memory_bytes.assign(plan.devices.size(), 1);
      return Result<PredictedStep>(step);
    };
    CHECK((two.choose().plan.pipelines.size() == 1) == (ms == 97));
  }
  CHECK_THAT(two.why("numbers of their own"), ContainsSubstring("+3 %"));
}

TEST_CASE("memory for each module alone calls for numbers of their own", "[scheduler]") {
  // 10 elements of 16 bytes in either module: 160 bytes, beside a few of activations. A whole model
  // takes more than 300, and five devices hold no pipelines without one.
  TwoLayers two(5, 10);
  two.request.microbatches = 1;
  two.request.device_memory = Bytes{300};
  const auto made = two.choose();
  CHECK(made.layout.replicas.size() == 5);
  CHECK_FALSE(made.one_number_ms.has_value());
  for (const double bytes : made.predicted.peak_memory_bytes) CHECK(bytes <= 300);
  two.request.device_memory = Bytes{150};
  CHECK(auto_layout(two.request).error().code == Errc::infeasible);
}

TEST_CASE("pins of single modules are kept", "[scheduler]") {
  TwoLayers two(5, 10);
  const auto pinned = [&](std::optional<std::int32_t> vision, std::optional<std::int32_t> llm) {
    two.request.pins["vision"].dp = vision;
    two.request.pins["llm"].dp = llm;
    return two.numbers();
  };
  CHECK(pinned(3, 2) == Numbers{{"vision", 3}, {"llm", 2}});
  CHECK(pinned(1, 4) == Numbers{{"vision", 1}, {"llm", 4}});
  CHECK(pinned(4, 1) == Numbers{{"vision", 4}, {"llm", 1}});
  CHECK(pinned({}, 2) == Numbers{{"vision", 3}, {"llm", 2}});
  CHECK(pinned(2, {}) == Numbers{{"vision", 2}, {"llm", 3}});
  CHECK(pinned(5, 5) == Numbers{{"vision", 5}, {"llm", 5}});
  CHECK(two.why("numbers of their own").empty());
}

TEST_CASE("two encoders may have numbers that differ", "[scheduler]") {
  const auto model = model_of(vision_audio_llm(), {1});
  AutoLayoutRequest request;
  request.model = &model;
  request.samples = {testing::sample(1, 1), testing::sample(2, 0)};
  request.cluster = {8, 1};
  request.global_batch = 12;
  request.microbatches = 4;
  request.pins["vision"].dp = 2;
  request.pins["audio"].dp = 1;
  request.pins["llm"].dp = 3;
  auto made = auto_layout(request).value();
  CHECK(numbers_of(made.plan) == Numbers{{"vision", 2}, {"audio", 1}, {"llm", 3}});
  CHECK(made.plan.devices.size() == 8);
  // Projectors go along.
  CHECK(made.plan.group_of(ModuleId{1}) == made.plan.group_of(ModuleId{0}));
  request.pins["vision_projector"].dp = 2;
  request.pins["vision"].dp.reset();
  CHECK((auto_layout(request).value().plan == made.plan));
  // Stages of a module, too.
  request.cluster.nodes = 9;
  request.pins["llm"].pp = 2;
  made = auto_layout(request).value();
  CHECK(std::count_if(made.plan.stages.begin(), made.plan.stages.end(), [](const Stage& stage) {
          return stage.runs.front().module == ModuleId{4};
        }) == 6);
}

TEST_CASE("a model without encoders has no numbers of their own", "[scheduler]") {
  AutoLayoutRequest request;
  const auto model = model_of(testing::text_llm(4), {1});
  request.model = &model;
  request.cluster = {3, 1};
  CHECK(allows_one_number(request));
  CHECK_FALSE(allows_own_numbers(request));
}

/// One step as the search plans it.
std::vector<Fault> faults_of(const AutoLayoutRequest& request, const ParallelPlan& plan) {
  IterationInput input;
  input.samples = draw_batch(request.samples, request.global_batch, request.seed);
  input.schedule = request.schedule;
  input.microbatches = assign_by_count(plan, static_cast<std::int32_t>(request.global_batch),
                                       static_cast<std::int32_t>(request.microbatches));
  return check(plan, plan_iteration(plan, std::move(input)).value());
}

TEST_CASE("what is chosen is sound and no slower than one number", "[scheduler][property]") {
  int own = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const bool few = seed % 2 == 1;  // Layers, so that pipelines cannot be cut as samples like.
    auto graph = few ? TwoLayers::graph() : vision_audio_llm();
    const int encoders = draw(random, 1, 4), llms = draw(random, 1, 4);
    std::vector<double> weights;
    if (few)
      weights = {0.56 * encoders / llms * draw(random, 9, 11), 10};  // For 8 rows and 3.
    else
      for (int i = 0; i < 15; ++i) weights.push_back(0.1 * draw(random, 1, 30));
    graph.modules[0].freeze = seed % 5 == 0;
    const auto model = model_of(graph, weights);
    AutoLayoutRequest request;
    request.model = &model;
    for (int i = 0; i < 6; ++i)
      request.samples.push_back(
          testing::sample(few ? 1 : draw(random, 0, 3), few ? 0 : draw(random, 0, 2), few ? 1 : 7));
    request.cluster = few ? ClusterShape{encoders + llms, 1}
                          : ClusterShape{draw(random, 2, 9), draw(random, 1, 2)};
    request.global_batch = few ? encoders + llms + 1 : draw(random, 3, 14);
    request.microbatches = few ? 8 : draw(random, 1, 4);
    request.planned_only = seed % 3 == 0;
    request.fault_tolerance = static_cast<std::int32_t>(seed % 4 / 2);
    request.prediction.speeds.network = {0.1 * draw(random, 0, 20), 0.001};
    if (seed % 4 == 0 || seed % 7 == 1) request.device_memory = Bytes{draw(random, 400, 4000)};
    request.seed = seed;
    INFO("seed " << seed);
    const auto made = auto_layout(request);
    request.one_number = true;
    const auto one = auto_layout(request);
    if (one.ok()) REQUIRE(made.ok());
    if (!made.ok()) continue;
    const auto& layout = made.value();
    CHECK(faults_of(request, layout.plan).empty());
    if (one.ok()) CHECK(layout.predicted.step_ms <= one.value().predicted.step_ms);
    for (const double bytes : layout.predicted.peak_memory_bytes)
      CHECK((request.device_memory.count() == 0 ||
             bytes <= static_cast<double>(request.device_memory.count())));
    if (layout.layout.replicas.empty()) continue;
    ++own;
    if (one.ok()) CHECK(layout.one_number_ms == Approx(one.value().predicted.step_ms));
    // What is printed is what is planned.
    if (!request.planned_only)
      CHECK((place_by_hand(graph, layout.layout, request.cluster, IdleDevices::refused,
                           {request.fault_tolerance, Dtype::fp32})
                 .value() == layout.plan));
  }
  INFO(own << " of their own");
  CHECK(own >= 10);  // Else the test says little.
}

}  // namespace
}  // namespace troupe::scheduler
