#include "scheduler/cost/sample_costs.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <span>
#include <vector>

#include "scheduler/simulate/predicted_costs.hpp"
#include "tests/scheduler/random_plans.hpp"

namespace troupe::scheduler {
namespace {

using testing::sample;
using testing::text_llm;
using testing::vision_audio_llm;

/// The same for every layer: a task takes longer for more tokens, and for longer sequences.
CostModel cost_model(const ModelGraph& graph) {
  LayerProfile block{"block", {}, CostOrigin::measured, Bytes{20}, {}};
  for (const TokenCount count : {1, 4, 16, 64, 256, 1024}) {
    const auto tokens = static_cast<double>(count);
    const double square = 1e-4 * tokens * tokens;
    block.points.push_back({count,
                            {0.01 * tokens + 1, 0.02 * tokens, 0.03 * tokens, 4 * tokens},
                            {square + 0.1, 2 * square, 0, 0}});
  }
  Profile profile{"test", {}, {block}, {}};
  for (const auto& module : graph.modules)
    for (const auto& layer : module.layers) profile.layers.push_back({layer.name, "block"});
  return CostModel::create(graph, profile).value();
}

/// All layers of the model, module by module.
std::vector<AlikeLayers> all_layers(const ModelGraph& graph, const SampleCosts& costs) {
  std::vector<AlikeLayers> layers;
  for (std::size_t m = 0; m < graph.modules.size(); ++m)
    costs.add({ModuleId{m}, {0, static_cast<std::int32_t>(graph.modules[m].layers.size())}}, {},
              layers);
  return layers;
}

bool same(const PassCosts& a, const PassCosts& b) {
  return a.forward == b.forward && a.input_grad == b.input_grad && a.weight_grad == b.weight_grad &&
         a.activations == b.activations;
}

TEST_CASE("samples that differ in nothing that costs depend on are summed once", "[scheduler]") {
  const auto model = cost_model(vision_audio_llm());
  const SampleShape first = sample(1, 1, 30);
  std::vector<SampleShape> samples(8, first);
  samples[1].id = "another";
  samples[1].position = 99;
  samples[1].seen_by = {NodeId{1}};
  samples[1].decoder = NodeId{1};
  samples[2].llm_tokens += 1;
  samples[3].trained_tokens += 1;
  samples[4].media[0].items[0].hidden_rows += 4;
  samples[5].media.pop_back();  // The window: as many tokens, all of text.
  samples[6].markers = {{ModuleId{0}, 3}};
  samples[7].markers = {{ModuleId{2}, 3}};
  SampleSums sums(model, samples);
  CHECK(sums.size() == 8);
  const SampleCosts costs = sums.at({}).value();
  CHECK(costs.shape_count() == 7);
  CHECK(costs.shape_of(0) == costs.shape_of(1));
  for (std::size_t a = 1; a < samples.size(); ++a)
    for (std::size_t b = 1; b < a; ++b) CHECK(costs.shape_of(a) != costs.shape_of(b));
  const SampleCosts turned = costs.in_order({7, 6, 5, 4, 3, 2, 1, 0});
  for (std::size_t s = 0; s < samples.size(); ++s)
    CHECK(turned.shape_of(s) == costs.shape_of(samples.size() - 1 - s));
}

TEST_CASE("a sample costs beside others what it costs alone, to the bit", "[scheduler][property]") {
  auto made = testing::random_case(GENERATE(range(0u, 60u)));
  // Every other llm attends by modality, so that places of markers count.
  ModelGraph& graph = made.plan.model;
  if (made.input.samples.size() % 2 == 0) graph.modules.back().attention = AttentionRule::modality;
  const auto model = cost_model(graph);
  std::vector<SampleShape> samples = made.input.samples;
  for (std::size_t s = 0; s < made.input.samples.size(); ++s) {  // The same, and with a marker.
    samples.push_back(made.input.samples[s]);
    if (const auto& media = samples[s].media; s % 2 == 0 && !media.empty())
      samples.back().markers = {{media.front().module, 1}};
  }
  SampleSums sums(model, samples);
  const SampleCosts costs = sums.at({}).value();
  const auto layers = all_layers(graph, costs);
  const auto works = sample_workloads(sums).value();
  REQUIRE(works.size() == samples.size());
  for (std::size_t s = 0; s < samples.size(); ++s) {
    SampleSums own(model, std::span(samples).subspan(s, 1));
    const SampleCosts alone = own.at({}).value();
    CHECK(same(costs.sample(layers, s), alone.sample(layers, 0)));
    const std::vector<std::int32_t> here{static_cast<std::int32_t>(s)}, there{0};
    CHECK(same(costs.part(layers, here), alone.part(layers, there)));
    CHECK(works[s] == sample_workloads(own).value().front());
  }
}

TEST_CASE("no samples have no shape, and cost nothing", "[scheduler]") {
  const auto graph = text_llm(3);
  const auto model = cost_model(graph);
  SampleSums sums(model, {});
  CHECK(sums.size() == 0);
  CHECK(sums.at({}).value().shape_count() == 0);
  CHECK(sample_workloads(sums).value().empty());
}

}  // namespace
}  // namespace troupe::scheduler
