#include "scheduler/cost/layer_work.hpp"
#include "models/llama/family.hpp"
#include "models/mlp/family.hpp"
#include "models/qwen2_vl/family.hpp"
#include "models/whisper/family.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

namespace troupe::scheduler {
namespace {

using Catch::Approx;

template <class Config>
std::vector<LayerWork> works_of(const char* family, const Config& config,
                                std::int64_t input_width = 0) {
  ModuleConfig module;
  module.name = "m";
  module.family = family;
  module.config = config;
  return layer_works(module, input_width);
}

TEST_CASE("the work of an 8B llm follows from its widths", "[scheduler]") {
  const auto works = works_of("llama", models::LlmConfig{.num_hidden_layers = 32,
                                                         .hidden_size = 4096,
                                                         .intermediate_size = 14336,
                                                         .num_attention_heads = 32,
                                                         .num_key_value_heads = 8,
                                                         .vocab_size = 128'256});
  REQUIRE(works.size() == 34);
  // Attention 4096^2 x (2 + 2/4), three matrices of 4096 x 14336: 218.1 M per block.
  CHECK(works[1].weights == Approx(4096.0 * 4096 * 2.5 + 3 * 4096.0 * 14336));
  double weights = 0;
  for (const auto& work : works) weights += work.weights;
  CHECK(weights == Approx(8.03e9).epsilon(0.01));
  CHECK(works[0].used_weights == 0);
}

TEST_CASE("a head makes more logits than fit into a chunk in several", "[scheduler]") {
  const auto works = works_of(
      "llama", models::LlmConfig{.num_hidden_layers = 1, .hidden_size = 8, .vocab_size = 32'000});
  const auto& head = works.back();
  CHECK(head.logits == 32'000);
  // 512 rows of 32,000 x 4 bytes are a chunk, of half as many columns 1024 (1048 are 64 MiB).
  CHECK(head.logit_chunks(512, 4) == 1);
  CHECK(head.logit_chunks(513, 4) == 2);
  CHECK(head.logit_chunks(1025, 4) == 3);
  CHECK(head.logit_chunks(1024, 4, /*tp=*/2) == 1);
  CHECK(head.logit_chunks(0, 4) == 1);
  CHECK(works[1].logit_chunks(1e6, 4) == 1);
}

TEST_CASE("a decoder's heads may be wider than its rows", "[scheduler]") {
  // Rows of 8; 2 query heads and 1 key head of 8. Query and output 8 x 16 each, key and value 8 x 8
  // each: 384; feed-forward 3 x 8 x 16 = 384. Scores and values: 2 x 2 flops in 16 columns.
  const auto block = works_of("llama", models::LlmConfig{.num_hidden_layers = 1,
                                                         .hidden_size = 8,
                                                         .intermediate_size = 16,
                                                         .num_attention_heads = 2,
                                                         .num_key_value_heads = 1,
                                                         .head_dim = 8,
                                                         .vocab_size = 32})[1];
  CHECK(block.weights == 768);
  CHECK(block.attention_flops() == 64);
  // Five rows see 1 + 2 + 3 + 4 + 5 rows.
  CHECK(block.attention_pairs(5) == 15);
}

TEST_CASE("the first convolution of an audio encoder runs over frames", "[scheduler]") {
  // Ten frames make five rows: 10 x 3 x 10 x 8 + 5 x 3 x 8 x 8 products, 672 per row.
  const auto works = works_of("whisper", models::AudioConfig{.encoder_layers = 1,
                                                             .d_model = 8,
                                                             .encoder_attention_heads = 2,
                                                             .encoder_ffn_dim = 16,
                                                             .num_mel_bins = 10});
  REQUIRE(works.size() == 3);
  CHECK(works[0].used_weights * 5 == 10 * 240 + 5 * 192);
  CHECK(works[0].entry_weights * 5 == 10 * 240);
  // Everybody sees everybody.
  CHECK(works[1].attention_pairs(5) == 25);
  CHECK(works[2].used_weights == 0);
}

TEST_CASE("every family has work for each of its layers", "[scheduler]") {
  CHECK(works_of("qwen2-vl", models::VisionConfig{}).size() == 6);
  CHECK(works_of("whisper", models::AudioConfig{}).size() == 4);
  const auto projector = works_of("mlp", models::ProjectorConfig{.output_size = 128}, 64);
  REQUIRE(projector.size() == 1);
  CHECK(projector[0].weights == 64 * 128 + 128 * 128);
}

TEST_CASE("widths that a projector leaves out come from its neighbours", "[scheduler]") {
  ModuleConfig vision, projector, llm;
  vision.name = "vision", vision.family = "qwen2-vl",
  vision.config = models::VisionConfig{.hidden_size = 12};
  projector.name = "projector", projector.family = "mlp",
  projector.config = models::ProjectorConfig{};
  llm.name = "llm", llm.family = "llama", llm.config = models::LlmConfig{.hidden_size = 8};
  ModelGraph graph;
  graph.modules = {{"vision", ModuleKind::encoder, false, {ModuleId{1}}, {}, 64, 12},
                   {"projector", ModuleKind::projector, false, {ModuleId{2}}, {}, 8, 8},
                   {"llm", ModuleKind::llm, false, {}, {}, 8, 8}};
  // In the order of the graph, whatever that of the configurations.
  const auto works = model_works(graph, {llm, projector, vision});
  REQUIRE(works.size() == 3);
  CHECK(works[0].front().kind == "vision.embed");
  CHECK(works[1].front().weights == 12 * 8 + 8 * 8);
  CHECK(works[2].back().kind == "llm.head");
}

}  // namespace
}  // namespace troupe::scheduler
