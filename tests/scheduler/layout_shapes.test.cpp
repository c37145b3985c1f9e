#include "scheduler/layout/layout_shapes.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <random>

#include "scheduler/layout/layout_estimate.hpp"
#include "tests/scheduler/example_models.hpp"
#include "tests/scheduler/layout_requests.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using testing::draw;
using testing::model_of;
using testing::sample;
using testing::vision_audio_llm;

/// Weights of all layers in model order, `ms` in turn; state and activations of some bytes.
LayerWeights weights_of(const ModelGraph& model, const std::vector<double>& ms) {
  LayerWeights weights;
  for (std::size_t m = 0; m < model.modules.size(); ++m)
    for (std::size_t l = 0; l < model.modules[m].layers.size(); ++l) {
      const std::size_t i = weights.layers.size();
      weights.layers.push_back({ModuleId{m}, static_cast<std::int32_t>(l)});
      weights.work_ms.push_back(ms[i % ms.size()]);
      weights.state_bytes.push_back(100.0 + static_cast<double>(7 * i % 5));
      weights.activation_bytes.push_back(10.0 + static_cast<double>(i % 3));
    }
  return weights;
}

/// Shapes by their slowest device, without any that a bound could leave out.
ShapeSearch all_shapes() {
  ShapeSearch search;
  search.cost = [](const PipelineShape& shape) { return std::optional(shape.slowest_ms); };
  search.least_cost = [](PipelineForm, std::int32_t, double) {
    return -std::numeric_limits<double>::infinity();
  };
  search.count = 100'000;
  return search;
}

const FoundShape* find(const std::vector<FoundShape>& found, PipelineForm form) {
  const auto at = std::find_if(found.begin(), found.end(),
                               [&](const auto& each) { return each.shape.form == form; });
  return at == found.end() ? nullptr : &*at;
}

TEST_CASE("the best shape of each form on three devices", "[scheduler]") {
  // Vision 2 layers of 3 ms, llm 4 layers of 2 ms: 14 ms.
  ModelGraph model;
  model.modules = {
      {"vision", ModuleKind::encoder, false, {ModuleId{1}}, testing::layers("v", 2), 8, 8},
      {"llm", ModuleKind::llm, false, {}, testing::layers("l", 4), 8, 8}};
  const auto weights = weights_of(model, {3, 3, 2, 2, 2, 2});
  PipelineShapes shapes(model, weights);
  const auto found = shapes.best(3, all_shapes());
  // 3 + 3, 2 + 2, 2 + 2: no chain is faster than 6, as 3 | 3 + 2 | 6 is not.
  REQUIRE(find(found, PipelineForm::chain));
  CHECK(find(found, PipelineForm::chain)->shape.slowest_ms == Approx(6));
  // One device for vision works 6 ms, two leave 8 for the llm's.
  REQUIRE(find(found, PipelineForm::encoders_first));
  CHECK(find(found, PipelineForm::encoders_first)->shape.tracks.front().segments() == 1);
  CHECK(find(found, PipelineForm::encoders_first)->cost == Approx(6));
  // Vision 3, 3 on two devices with 2 each of the llm, the third has the rest of it: 5, 5, 4.
  REQUIRE(find(found, PipelineForm::shared));
  CHECK(find(found, PipelineForm::shared)->cost == Approx(5));
  CHECK(found.front().shape.form == PipelineForm::shared);
  CHECK_FALSE(find(found, PipelineForm::side_by_side));  // One encoder has nobody beside it.
  CHECK(shapes.best(7, all_shapes()).empty());           // Six layers.
}

TEST_CASE("no cut of a row is faster, whatever its devices do besides", "[scheduler][property]") {
  const auto model = testing::text_llm(9);
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    std::vector<double> ms;
    for (int i = 0; i < 9; ++i) ms.push_back(0.1 * draw(random, 1, 30));
    const auto weights = weights_of(model, ms);
    PipelineShapes shapes(model, weights);
    for (std::int32_t devices = 1; devices <= 9; ++devices) {
      const auto found = shapes.best(devices, all_shapes());
      REQUIRE(found.size() == 1);
      // Every way to cut nine layers: a bit per boundary.
      double best = std::numeric_limits<double>::infinity();
      for (unsigned cuts = 0; cuts < 256; ++cuts) {
        if (__builtin_popcount(cuts) + 1 != devices) continue;
        double slowest = 0, own = 0;
        for (unsigned l = 0; l < 9; ++l) {
          own += ms[l];
          if (l == 8 || (cuts >> l & 1) != 0) slowest = std::max(slowest, own), own = 0;
        }
        best = std::min(best, slowest);
      }
      CHECK(found.front().cost == Approx(best));
    }
  }
}

TEST_CASE("what bounds leave out is never among the best", "[scheduler][property]") {
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    auto graph = vision_audio_llm();
    for (auto& module : graph.modules) module.freeze = draw(random, 0, 2) == 0;
    std::vector<double> ms;
    for (int i = 0; i < 15; ++i) ms.push_back(0.1 * draw(random, 0, 30));
    const auto costs = model_of(graph, {1});
    AutoLayoutRequest request;
    request.model = &costs;
    request.samples = {sample(1, 1)};
    request.global_batch = draw(random, 1, 64);
    request.microbatches = draw(random, 1, 8);
    request.cluster = {4, 4};
    request.prediction.speeds.network = {0.1 * draw(random, 0, 3), 1e-6 * draw(random, 0, 3)};
    const auto weights = std::make_shared<const LayerWeights>(weights_of(graph, ms));
    const LayoutEstimate estimate(request, weights, draw(random, 1, 4));
    const bool wide = draw(random, 0, 1) == 1;
    const StageWidths widths = wide ? StageWidths{1, 2} : StageWidths{};
    PipelineShapes shapes(graph, *weights, widths);
    for (std::int32_t devices = 1; devices <= 12; ++devices) {
      auto search = all_shapes();
      search.cost = [&](const PipelineShape& shape) -> std::optional<double> {
        if (estimate.fullest_bytes(shape, 1) > 900) return std::nullopt;
        return estimate.ms(shape);
      };
      const auto all = shapes.best(devices, search);
      for (const auto& each : all) {
        const auto& shape = each.shape;
        CHECK(estimate.least_ms(shape.form, shape.devices, shape.slowest_ms) <=
              each.cost * (1 + 1e-9));
        CHECK(estimate.least_ms(shape.devices) <= each.cost * (1 + 1e-9));
        CHECK(estimate.least_bytes(shape.devices) <= estimate.fullest_bytes(shape, 1) * (1 + 1e-9));
      }
      // As `all` by brute force: the cheapest three, and the first of each form.
      search.count = 3;
      search.least_cost = [&](PipelineForm form, std::int32_t groups, double slowest_ms) {
        return estimate.least_ms(form, groups, slowest_ms);
      };
      const auto best = shapes.best(devices, search);
      std::vector<const FoundShape*> wanted;
      for (const auto& each : all) {
        const bool first = find(all, each.shape.form) == &each;
        if (first || wanted.size() < search.count) wanted.push_back(&each);
      }
      INFO("seed " << seed << ", " << devices << " devices");
      REQUIRE(best.size() == wanted.size());
      for (std::size_t i = 0; i < best.size(); ++i) {
        CHECK(best[i].cost == wanted[i]->cost);
        CHECK(best[i].shape.form == wanted[i]->shape.form);
        for (std::size_t t = 0; t < best[i].shape.tracks.size(); ++t)
          CHECK(best[i].shape.tracks[t].cuts == wanted[i]->shape.tracks[t].cuts);
      }
    }
  }
}

}  // namespace
}  // namespace troupe::scheduler
