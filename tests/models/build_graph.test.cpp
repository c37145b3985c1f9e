#include <algorithm>

#include "models/built_in_layers.hpp"
#include "models/family/registry.hpp"
#include "models/graph_problems.hpp"
#include "models/llama/family.hpp"
#include "models/mlp/family.hpp"
#include "models/qwen2_vl/family.hpp"
#include "models/whisper/family.hpp"
#include "tests/models/chain.hpp"
#include "tests/torch_catch.hpp"

// After LibTorch's headers, some of which use the macros that this one removes.

#include <catch2/matchers/catch_matchers_string.hpp>

using namespace troupe;
using namespace troupe::models;
using Catch::Matchers::ContainsSubstring;

namespace {

std::string where(const std::vector<ModuleConfig>& model, const std::string& text) {
  const auto graph = build_graph(model);
  REQUIRE_FALSE(graph.ok());
  CHECK(graph.error().code == Errc::invalid_argument);
  CHECK_THAT(graph.error().message, ContainsSubstring(text));
  CHECK_FALSE(graph.error().fix.empty());
  return graph.error().where;
}

}  // namespace

TEST_CASE("the graph names layers and counts parameters", "[models]") {
  const auto graph = build_graph(small_model()).value();
  REQUIRE(graph.modules.size() == 5);
  const auto& vision = graph.modules[0];
  REQUIRE(vision.layers.size() == 4);
  CHECK(vision.layers[0].name == "vision.patch_embed");
  CHECK(vision.layers[0].parameter_elements == 16 * 3 * 2 * 4 * 4);
  CHECK(vision.layers[1].name == "vision.blocks.0");
  // Two norms of 2 x 16; qkv 16 x 48 + 48; proj 16 x 16 + 16; fc1 16 x 32 + 32; fc2 32 x 16 + 16.
  CHECK(vision.layers[1].parameter_elements == 64 + 816 + 272 + 544 + 528);
  // Norm 2 x 16; 64 x 64 + 64; 64 x 24 + 24.
  CHECK(vision.layers[3].name == "vision.merger");
  CHECK(vision.layers[3].parameter_elements == 32 + 4160 + 1560);
  CHECK(vision.hidden_width == 16);
  CHECK(vision.output_width == 24);
  CHECK(graph.modules[2].layers[0].name == "audio.conv");
  CHECK(graph.modules[2].layers[3].name == "audio.layer_norm");
  const auto& llm = graph.modules[4];
  REQUIRE(llm.layers.size() == 4);
  CHECK(llm.layers[0].name == "llm.embed_tokens");
  CHECK(llm.layers[2].name == "llm.layers.1");
  // Norm 24; head 37 x 24.
  CHECK(llm.layers[3].name == "llm.head");
  CHECK(llm.layers[3].parameter_elements == 24 + 888);
  CHECK(graph.tied.empty());
}

TEST_CASE("what the graph counts is what the layers hold", "[models][property]") {
  for (const bool tied : {false, true}) {
    auto all = small_model();
    all[4].config.edit<LlmConfig>().tie_word_embeddings = tied;
    const auto graph = build_graph(all).value();
    for (const auto& module : all) {
      const auto& layers = graph.at(graph.find(module.name)).layers;
      const auto chain = make_chain(module, all);
      for (std::size_t i = 0; i < layers.size(); ++i) {
        std::int64_t trained = 0, constant = 0;
        for (const auto& parameter : chain.layers[i]->parameters()) {
          const bool shared = !graph.tied.empty() && parameter.name == graph.tied[0].name;
          if (shared) continue;
          (parameter.value.requires_grad() ? trained : constant) += parameter.value.numel();
        }
        CHECK(layers[i].parameter_elements == trained);
        CHECK(layers[i].constant_elements == constant);
      }
    }
  }
}

TEST_CASE("the list of parameters is that of the layers, a tied one once", "[models][property]") {
  for (const bool tied : {false, true}) {
    auto all = small_model();
    all[0].freeze = true;
    all[4].config.edit<LlmConfig>().tie_word_embeddings = tied;
    auto graph = build_graph(all).value();
    for (const auto& info : list_parameters(all, graph)) CHECK_FALSE(info.moments_in_host);
    for (const std::size_t m : std::vector<std::size_t>{0, 1, 4})
      graph.modules[m].moments_in_host = true;
    const auto list = list_parameters(all, graph);
    for (const auto& info : list)
      CHECK(info.moments_in_host ==
            (info.trains && graph.at(info.uses.front().module).moments_in_host));
    std::size_t seen = 0;
    for (const auto& module : all) {
      const ModuleId id = graph.find(module.name);
      const auto chain = make_chain(module, all);
      for (std::size_t i = 0; i < chain.layers.size(); ++i)
        for (const auto& parameter : chain.layers[i]->parameters()) {
          const auto found = std::find_if(list.begin(), list.end(), [&](const auto& info) {
            return info.name == parameter.name;
          });
          REQUIRE(found != list.end());
          CHECK(found->shape == parameter.value.sizes().vec());
          const LayerId layer{id, static_cast<std::int32_t>(i)};
          CHECK(std::find(found->uses.begin(), found->uses.end(), layer) != found->uses.end());
          CHECK(found->trains == (parameter.value.requires_grad() && !module.freeze));
          ++seen;
        }
    }
    CHECK(seen == list.size() + (tied ? 1 : 0));
  }
}

TEST_CASE("a tied embedding is counted once, for both layers", "[models]") {
  auto model = small_model();
  model[4].config.edit<LlmConfig>().tie_word_embeddings = true;
  const auto graph = build_graph(model).value();
  REQUIRE(graph.tied.size() == 1);
  CHECK(graph.tied[0].name == "llm.model.embed_tokens.weight");
  CHECK(graph.tied[0].parameter_elements == 37 * 24);
  const std::vector<LayerId> users{{ModuleId{4}, 0}, {ModuleId{4}, 3}};
  CHECK((graph.tied[0].layers == users));
  CHECK(graph.modules[4].layers[0].parameter_elements == 0);
  CHECK(graph.modules[4].layers[3].parameter_elements == 24);
}

TEST_CASE("the graph knows what tensor parallelism splits, and how", "[models]") {
  auto model = small_model();
  const auto& config = model[4].config.as<LlmConfig>();
  const std::int64_t width = config.hidden_size, inner = config.intermediate_size;
  const std::int64_t keys = config.num_key_value_heads * config.head_width();
  const auto graph = build_graph(model).value();
  // Queries, output and the three matrices of the mlp anywhere; keys and values by heads.
  using Splits = std::vector<SplitElements>;
  const Splits block{{2 * width * width + 3 * width * inner, 0},
                     {2 * keys * width, config.num_key_value_heads}};
  CHECK((graph.modules[4].layers[1].splits == block));
  CHECK((graph.modules[4].layers[0].splits == Splits{{37 * 24, 0}}));
  model[4].config.edit<LlmConfig>().tie_word_embeddings = true;
  const auto tied = build_graph(model).value();
  CHECK((tied.tied[0].splits == Splits{{37 * 24, 0}}));
  CHECK(tied.modules[4].layers[0].splits.empty());
  CHECK(tied.modules[4].layers[3].splits.empty());
  // The rest of a layer is kept by all ranks; what ranks keep together is at least the whole.
  for (const auto& module : graph.modules)
    for (const auto& layer : module.layers) {
      std::int64_t split = 0;
      for (const auto& each : layer.splits) split += each.elements;
      CHECK(split <= layer.parameter_elements);
      CHECK(2 * split_over(layer.parameter_elements, layer.splits, 2) >=
            layer.parameter_elements + (layer.parameter_elements - split));
    }
  // By parameters it is the same: boxes of all ranks.
  std::int64_t of_boxes = 0;
  for (const auto& info : list_parameters(small_model(), graph))
    if (info.uses.front() == LayerId{ModuleId{4}, 1}) of_boxes += elements_of(rank_box(info, 2, 0));
  const auto& layer = graph.modules[4].layers[1];
  CHECK(of_boxes == split_over(layer.parameter_elements, layer.splits, 2));
}

TEST_CASE("modules are ordered upstream first, the llm last", "[models]") {
  auto model = small_model();
  std::reverse(model.begin(),
               model.end());  // llm, audio_projector, audio, vision_projector, vision
  const auto graph = build_graph(model).value();
  std::vector<std::string> names;
  for (const auto& module : graph.modules) names.push_back(module.name);
  CHECK(names ==
        std::vector<std::string>{"audio", "audio_projector", "vision", "vision_projector", "llm"});
  CHECK((graph.modules[0].next == std::vector{ModuleId{1}}));
  CHECK((graph.modules[3].next == std::vector{graph.llm()}));
  CHECK(graph.modules[4].next.empty());
}

TEST_CASE("a projector takes its widths from its neighbours", "[models]") {
  const auto model = small_model();
  const auto layer = make_layer(model[3], model, 0, {}).value()->parameters();
  CHECK(layer[0].name == "audio_projector.linear_1.weight");
  CHECK(layer[0].value.sizes() == at::IntArrayRef({24, 16}));
  CHECK(layer[2].value.sizes() == at::IntArrayRef({24, 24}));
}

TEST_CASE("a model that cannot be built says which module and why", "[models][errors]") {
  const auto changed = [](auto change) {
    auto model = small_model();
    change(model);
    return model;
  };
  using Modules = std::vector<ModuleConfig>;
  CHECK(where({}, "exactly one module of kind 'llm'") == "modules");
  CHECK(where(changed([](Modules& m) { m[0].name = ""; }), "no name") == "modules");
  CHECK(where(changed([](Modules& m) { m[1].name = "llm"; }), "two modules") == "modules.llm.name");
  CHECK(where(changed([](Modules& m) { m[0].family = "clip"; }), "no family 'clip'") ==
        "modules.vision.family");
  CHECK(where(changed([](Modules& m) { m[0].kind = ModuleKind::projector; }), "kind 'encoder'") ==
        "modules.vision.kind");
  CHECK(where(changed([](Modules& m) { m[0].config = AudioConfig{}; }), "fields of family") ==
        "modules.vision.config");
  CHECK(where(changed([](Modules& m) { m[0].next = "nowhere"; }), "no module 'nowhere'") ==
        "modules.vision.next");
  CHECK(where(changed([](Modules& m) { m[0].next = ""; }), "goes nowhere") ==
        "modules.vision.next");
  CHECK(where(changed([](Modules& m) { m[0].next = "audio"; }), "is an encoder") ==
        "modules.vision.next");
  CHECK(where(changed([](Modules& m) { m[1].next = "vision_projector"; }), "never reaches") ==
        "modules.vision.next");
  CHECK(where(changed([](Modules& m) { m[4].next = "vision"; }), "goes nowhere") ==
        "modules.llm.next");
  CHECK(where(changed([](Modules& m) { m[2].next = "llm"; }), "16 columns") ==
        "modules.audio.next");
}

/// The small model with a teacher whose logits the llm's last layer gets.
static std::vector<ModuleConfig> taught_model() {
  if (find_family("test-teacher") == nullptr) {
    Family family = *find_family("llama");
    family.name = "test-teacher", family.kind = ModuleKind::teacher;
    family.make = make_built_in;
    family.describe = [](const ModuleConfig& module, const Widths& widths) {
      auto made = find_family("llama")->describe(module, widths);
      made.output_width = made.hidden_width;
      return made;
    };
    REQUIRE(register_family(std::move(family)).ok());
  }
  auto model = small_model();
  ModuleConfig teacher = model[4];
  teacher.name = "teacher", teacher.kind = ModuleKind::teacher, teacher.family = "test-teacher";
  teacher.next = "llm", teacher.freeze = true;
  model.insert(model.begin(), std::move(teacher));
  return model;
}

TEST_CASE("a teacher is a frozen module in front of the llm, of any width", "[models]") {
  auto model = taught_model();
  model[0].config.edit<LlmConfig>().hidden_size *= 2;
  const auto graph = build_graph(model).value();
  CHECK(graph.modules[0].name == "teacher");
  CHECK((graph.modules[0].next == std::vector{graph.llm()}));
  CHECK(module_elements(graph, ModuleId{0}).trained == 0);
  // Nothing of the llm follows from the rows that a teacher hands on.
  CHECK(graph.modules[graph.llm().index()] == build_graph(small_model()).value().modules.back());
}

TEST_CASE("a teacher that trains, is fed or feeds others is refused", "[models][errors]") {
  const auto changed = [](auto change) {
    auto model = taught_model();
    change(model);
    return model;
  };
  using Modules = std::vector<ModuleConfig>;
  CHECK(where(changed([](Modules& m) { m[0].freeze = false; }), "does not train") ==
        "modules.teacher.freeze");
  CHECK(where(changed([](Modules& m) { m[0].next = "vision_projector"; }), "last layer") ==
        "modules.teacher.next");
  CHECK(where(changed([](Modules& m) { m[1].next = "teacher"; }), "takes text alone") ==
        "modules.vision.next");
}

TEST_CASE("sizes that do not fit are named with the fix", "[models][errors]") {
  auto model = small_model();
  model[0].config.edit<VisionConfig>().num_heads = 3;
  CHECK(where(model, "does not divide embed_dim") == "modules.vision.config.num_heads");
  model = small_model();
  model[2].config.edit<AudioConfig>().encoder_attention_heads = 3;
  CHECK(where(model, "does not divide d_model") == "modules.audio.config.encoder_attention_heads");
  model = small_model();
  model[4].config.edit<LlmConfig>().num_key_value_heads = 3;
  CHECK(where(model, "does not divide num_attention_heads") ==
        "modules.llm.config.num_key_value_heads");
  model = small_model();
  model[4].config.edit<LlmConfig>().head_dim = 7;
  CHECK(where(model, "is odd") == "modules.llm.config.head_dim");
  model = small_model();
  model[4].config.edit<LlmConfig>().num_attention_heads = 10;
  CHECK(where(model, "hidden_size 24") == "modules.llm.config.num_attention_heads");
  model = small_model();
  model[0].config.edit<VisionConfig>().depth = 0;
  CHECK(where(model, "outside 1 .. 10000") == "modules.vision.config.depth");
  model = small_model();
  model[0].config.edit<VisionConfig>().mlp_ratio = 0.06;  // 16 columns: 0.96 of one.
  CHECK(where(model, "below one column") == "modules.vision.config.mlp_ratio");
}

TEST_CASE("all that is wrong with a model is told at once", "[models][errors]") {
  const auto wheres = [](const std::vector<ModuleConfig>& model) {
    std::vector<std::string> found;
    for (const auto& problem : graph_problems(model)) found.push_back(problem.where);
    return found;
  };
  using Wheres = std::vector<std::string>;
  CHECK(graph_problems(small_model()).empty());
  auto model = small_model();
  model[0].family = "clip";
  model[1].next = "nowhere";
  model[2].next = "vision";
  CHECK((wheres(model) ==
         Wheres{"modules.vision.family", "modules.vision_projector.next", "modules.audio.next"}));
  // Sizes: the audio encoder is wrong in itself, so its rows are not held against what the
  // projector takes.
  model = small_model();
  model[0].config.edit<VisionConfig>().num_heads = 3;
  model[2].config.edit<AudioConfig>().encoder_attention_heads = 3;
  model[3].config.edit<ProjectorConfig>().input_size = 99;
  model[4].config.edit<LlmConfig>().head_dim = 7;
  CHECK((wheres(model) == Wheres{"modules.vision.config.num_heads",
                                 "modules.audio.config.encoder_attention_heads",
                                 "modules.llm.config.head_dim"}));
}

TEST_CASE("a layer that does not exist is refused", "[models][errors]") {
  const auto model = small_model();
  for (const int index : {-1, 4}) {
    const auto layer = make_layer(model[4], model, index, {});
    REQUIRE_FALSE(layer.ok());
    CHECK(layer.error().code == Errc::invalid_argument);
    CHECK_THAT(layer.error().message, ContainsSubstring("layers 0 to 3"));
  }
}
