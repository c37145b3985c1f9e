#include "scheduler/recovery/layout_choice.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "scheduler/layout/place_by_hand.hpp"
#include "scheduler/recovery/template_layout.hpp"
#include "tests/scheduler/example_models.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Approx;

TEST_CASE("pipelines train what their templates say", "[scheduler][recovery]") {
  TemplateRequest request;
  request.layers = {{1, 2, Bytes{1}, {}}, {2, 4, Bytes{1}, {}}, {1, 1, Bytes{1}, {}}};
  request.node_count = 3;
  request.device_memory = Bytes{3};
  request.microbatches = 5;
  const auto model = testing::text_llm(3);
  const TemplateSet set = make_templates(request).value();
  CHECK(set.layer_ms == std::vector<double>{3, 6, 2});
  CHECK(set.microbatches == 5);
  double both = 0;
  HandLayout two;
  std::int32_t node = 0;
  for (const auto& made : set.templates) {
    std::vector<std::int32_t> nodes;
    for (std::int32_t n = 0; n < made.node_count; ++n) nodes.push_back(n);
    const auto plan =
        place_by_hand(model, {{*stages_of_template(model, layers_of(model), made, nodes, {})}},
                      {made.node_count, 1})
            .value();
    CHECK(microbatches_per_ms(plan, set) == Approx(1 / made.microbatch_ms));
    if (made.node_count == 3) continue;
    for (std::int32_t& own : nodes) own += node;
    two.pipelines.push_back(*stages_of_template(model, layers_of(model), made, nodes, {}));
    node += made.node_count;
    both += 1 / made.microbatch_ms;
  }
  CHECK(microbatches_per_ms(place_by_hand(model, two, {3, 1}).value(), set) == Approx(both));
}

TEST_CASE("where groups have replicas of their own the slower group counts",
          "[scheduler][recovery]") {
  const auto model = testing::vision_audio_llm();
  HandLayout layout;
  for (std::int32_t node = 0; node < 2; ++node)
    layout.replicas.push_back(
        {{"vision", "vision_projector", "audio", "audio_projector"},
         {{node,
           0,
           {{"vision", {}}, {"vision_projector", {}}, {"audio", {}}, {"audio_projector", {}}}}}});
  const auto llm_layers = static_cast<std::int32_t>(model.at(model.llm()).layers.size());
  layout.replicas.push_back(
      {{"llm"},
       {{2, 0, {{"llm", LayerRange{0, 1}}}}, {3, 0, {{"llm", LayerRange{1, llm_layers}}}}}});
  const auto plan = place_by_hand(model, layout, {4, 1}).value();
  const auto layers = layers_of(model);
  TemplateSet set;
  for (const LayerId& layer : layers) set.layer_ms.push_back(layer.module == model.llm() ? 2 : 1);
  const double encoder_ms = static_cast<double>(layers.size()) - llm_layers;
  const double slowest_ms = 2.0 * (llm_layers - 1);
  CHECK(microbatches_per_ms(plan, set) == Approx(std::min(2 / encoder_ms, 1 / slowest_ms)));
  set.layer_ms.pop_back();  // Of another model.
  CHECK(microbatches_per_ms(plan, set) == 0);
}

TEST_CASE("groups that share nodes take turns, and their replicas fill and drain",
          "[scheduler][recovery]") {
  // Of vision (4 layers), audio (3), their projectors and the llm (6).
  const auto model = testing::vision_audio_llm();
  HandLayout layout;
  for (std::int32_t node = 0; node < 2; ++node)
    layout.replicas.push_back({{"vision", "audio"}, {{node, 0, {{"vision", {}}, {"audio", {}}}}}});
  layout.replicas.push_back(
      {{"llm"}, {{0, 0, {{"llm", LayerRange{0, 2}}}}, {1, 0, {{"llm", LayerRange{2, 6}}}}}});
  TemplateSet set;
  set.layer_ms.assign(15, 1);
  set.microbatches = 4;
  // Two encoders of 9 ms each; the llm's stages of 2 and 4 ms: (6 + 3 x 4) / 4.
  CHECK(1 / microbatches_per_ms(place_by_hand(model, layout, {2, 1}).value(), set) ==
        Approx(4.5 + 4.5));
  // On devices of their own groups do not wait for each other: the slower one counts.
  for (HandStage& stage : layout.replicas.back().stages) stage.device = 1;
  CHECK(1 / microbatches_per_ms(place_by_hand(model, layout, {2, 2}).value(), set) == Approx(4.5));
}

TEST_CASE("a layout that copies much pays only if it is left alone for long",
          "[scheduler][recovery]") {
  // 10 samples a second at once, or 12 after a minute.
  const std::vector<LayoutOutlook> outlooks{{0.010, 0}, {0.012, 60'000}};
  CHECK(lost_samples(outlooks[0], 0.012, 100'000) == Approx(200));
  CHECK(lost_samples(outlooks[1], 0.012, 100'000) == Approx(720));
  CHECK(lost_samples(outlooks[1], 0.012, 30'000) == Approx(360));  // All that there was time for.
  CHECK(choose_layout(outlooks, 359'000) == 0);
  CHECK(choose_layout(outlooks, 361'000) == 1);
  const std::vector<LayoutOutlook> same{{0.01, 5}, {0.01, 5}};
  CHECK(choose_layout(same, 1000) == 0);
}

TEST_CASE("who has seen many changes expects the next one soon", "[scheduler][recovery]") {
  CHECK(expected_quiet_ms(0, 0) == 3.6e6);
  CHECK(expected_quiet_ms(9, 3.6e6) == 7.2e5);
  CHECK(expected_quiet_ms(1, 1e4) < expected_quiet_ms(0, 1e4));
}

}  // namespace
}  // namespace troupe::scheduler
