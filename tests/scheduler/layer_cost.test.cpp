#include "scheduler/cost/layer_cost.hpp"

#include <catch2/catch_test_macros.hpp>

namespace troupe::scheduler {
namespace {

std::vector<LayerSpec> layers(const std::string& name, int count, std::int64_t elements = 10) {
  std::vector<LayerSpec> list;
  for (int i = 0; i < count; ++i) list.push_back({name + "." + std::to_string(i), elements});
  return list;
}

// vision (2) -> projector (1) -> llm (2).
ModelGraph chain(bool freeze_vision, bool freeze_projector, bool freeze_llm) {
  ModelGraph graph;
  graph.modules = {
      {"vision", ModuleKind::encoder, freeze_vision, {ModuleId{1}}, layers("vision", 2), 8, 8},
      {"projector", ModuleKind::projector, freeze_projector, {ModuleId{2}}, layers("p", 1), 8, 16},
      {"llm", ModuleKind::llm, freeze_llm, {}, layers("llm", 2), 16, 16}};
  return graph;
}

constexpr LayerCost kFull{4, 3, 2, Bytes{100}, Bytes{50}};

TEST_CASE("a frozen encoder costs its forward pass alone", "[scheduler]") {
  const auto graph = chain(true, false, true);
  const std::vector<LayerCost> full(2, kFull);
  for (const auto& cost : frozen_aware(full, graph, ModuleId{0})) {
    CHECK(cost.forward_ms == 4);
    CHECK(cost.backward_ms() == 0);
    CHECK(cost.activations == Bytes{0});
    CHECK(cost.parameters == Bytes{50});
  }
  // The trainable projector needs its weight gradient; nothing before it learns.
  CHECK(frozen_aware(kFull, graph, {ModuleId{1}, 0}).backward_ms() == 2);
  // The frozen llm passes the gradient on to the projector but has none of its own (eq. 3.2).
  CHECK(frozen_aware(kFull, graph, {ModuleId{2}, 0}).backward_ms() == 3);
}

TEST_CASE("the first trainable layer needs no input gradient", "[scheduler]") {
  const auto graph = chain(false, false, false);
  CHECK(frozen_aware(kFull, graph, {ModuleId{0}, 0}).backward_ms() == 2);
  CHECK(frozen_aware(kFull, graph, {ModuleId{0}, 1}).backward_ms() == 5);
  CHECK(frozen_aware(kFull, graph, {ModuleId{2}, 1}).backward_ms() == 5);
}

TEST_CASE("a layer without parameters has no weight gradient unless one is tied to it",
          "[scheduler]") {
  auto graph = chain(false, false, false);
  graph.modules[2].layers[1].parameter_elements = 0;
  CHECK(frozen_aware(kFull, graph, {ModuleId{2}, 1}).weight_grad_ms == 0);
  graph.tied = {{"llm.embed", {{ModuleId{2}, 0}, {ModuleId{2}, 1}}, 40}};
  CHECK(frozen_aware(kFull, graph, {ModuleId{2}, 1}).weight_grad_ms == 2);
}

}  // namespace
}  // namespace troupe::scheduler
