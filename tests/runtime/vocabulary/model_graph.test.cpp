#include "runtime/vocabulary/model_graph.hpp"

#include <catch2/catch_test_macros.hpp>

namespace troupe {
namespace {

// vision (3 layers) -> projector (1) -> llm (4), every layer with parameters.
ModelGraph chain(bool freeze_vision, bool freeze_projector, bool freeze_llm) {
  const auto layers = [](const std::string& name, int count) {
    std::vector<LayerSpec> list;
    for (int i = 0; i < count; ++i) list.push_back({name + "." + std::to_string(i), 10});
    return list;
  };
  ModelGraph graph;
  graph.modules = {
      {"vision", ModuleKind::encoder, freeze_vision, {ModuleId{1}}, layers("vision", 3), 8, 8},
      {"projector", ModuleKind::projector, freeze_projector, {ModuleId{2}}, layers("p", 1), 8, 16},
      {"llm", ModuleKind::llm, freeze_llm, {}, layers("llm", 4), 16, 16}};
  return graph;
}

TEST_CASE("a teacher enters the llm's last layer, all others the first", "[vocabulary]") {
  auto graph = chain(false, false, false);
  CHECK(entry_layer(graph, ModuleId{1}, ModuleId{2}) == 0);
  graph.modules[1].kind = ModuleKind::teacher;
  CHECK(entry_layer(graph, ModuleId{1}, ModuleId{2}) == 3);
}

TEST_CASE("the first trainable layer needs no input gradient, the next one does", "[vocabulary]") {
  const auto graph = chain(false, false, false);
  CHECK_FALSE(needs_input_gradient(graph, {ModuleId{0}, 0}));
  CHECK(needs_backward(graph, {ModuleId{0}, 0}));
  CHECK(needs_input_gradient(graph, {ModuleId{0}, 1}));
}

TEST_CASE("a frozen encoder before a trainable projector has no backward at all", "[vocabulary]") {
  const auto graph = chain(true, false, true);
  for (int layer = 0; layer < 3; ++layer) CHECK_FALSE(needs_backward(graph, {ModuleId{0}, layer}));
  CHECK_FALSE(needs_input_gradient(graph, {ModuleId{1}, 0}));
  CHECK(needs_backward(graph, {ModuleId{1}, 0}));
  // The frozen llm still carries the gradient to the projector.
  CHECK(needs_input_gradient(graph, {ModuleId{2}, 0}));
}

TEST_CASE("a frozen projector after a trainable encoder passes gradients on", "[vocabulary]") {
  const auto graph = chain(false, true, true);
  CHECK(needs_input_gradient(graph, {ModuleId{1}, 0}));
  CHECK(needs_backward(graph, {ModuleId{2}, 3}));
}

TEST_CASE("a layer whose only parameter is tied counts as trainable", "[vocabulary]") {
  ModelGraph graph;
  graph.modules = {{"llm", ModuleKind::llm, false, {}, {{"embed", 0}, {"head", 0}}, 4, 4}};
  CHECK_FALSE(needs_backward(graph, {ModuleId{0}, 1}));
  graph.tied = {{"llm.embed", {{ModuleId{0}, 0}, {ModuleId{0}, 1}}, 40}};
  CHECK(needs_backward(graph, {ModuleId{0}, 0}));
  CHECK(needs_input_gradient(graph, {ModuleId{0}, 1}));
}

TEST_CASE("a module's parameters are all it stores, tied ones once", "[vocabulary]") {
  // By hand: layers of 5, 7 and 3 elements, a constant of 2, and 40 that the first and the last
  // use.
  ModelGraph graph;
  graph.modules = {{"audio", ModuleKind::encoder, true, {ModuleId{1}}, {{"conv", 9, 4}}, 4, 4},
                   {"llm", ModuleKind::llm, false, {}, {{"embed", 5}, {"a", 7, 2}, {"head", 3}}}};
  graph.tied = {{"llm.embed", {{ModuleId{1}, 0}, {ModuleId{1}, 2}}, 40}};
  CHECK(module_elements(graph, ModuleId{1}).all == 5 + 7 + 3 + 2 + 40);
  CHECK(module_elements(graph, ModuleId{1}).trained == 5 + 7 + 3 + 40);
  CHECK(module_elements(graph, ModuleId{0}).all == 13);
  CHECK(module_elements(graph, ModuleId{0}).trained == 0);  // It is frozen.
  CHECK(tied_elements_begun(graph, {ModuleId{1}, 0}) == 40);
  CHECK(tied_elements_begun(graph, {ModuleId{1}, 2}) == 0);
}

}  // namespace
}  // namespace troupe
