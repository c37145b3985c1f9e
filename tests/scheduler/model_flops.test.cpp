#include "scheduler/cost/model_flops.hpp"
#include "models/llama/family.hpp"
#include "models/mlp/family.hpp"
#include "models/qwen2_vl/family.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <string>

namespace troupe::scheduler {
namespace {

// One block each, small enough to count by hand.
//
//   vision     rows of 8, patches of 3 x 1 x 2 x 2 = 12 numbers, feed-forward 32, four patches to a
//              row of 12.  embed 12 x 8 = 96;  block 4 x 8 x 8 + 2 x 8 x 32 = 768, 4 x 8 = 32 per
//              pair;  merger 32 x 32 + 32 x 12 = 1408, per patch 352
//   projector  12 -> 8 -> 8: 96 + 64 = 160
//   llm        rows of 8, 2 query heads and 1 key head of 4, feed-forward 16, vocabulary 32.
//              block 8 x 8 x 3 + 3 x 8 x 16 = 576, 32 per pair;  head 8 x 32 = 256
struct Frozen {
  bool vision = false, projector = false, llm = false;
};

std::vector<LayerSpec> layers(const std::string& name, int count) {
  std::vector<LayerSpec> made;
  for (int i = 0; i < count; ++i) made.push_back({name + std::to_string(i), 1, 0});
  return made;
}

ModelFlops tiny_model(Frozen frozen, AttentionRule rule = AttentionRule::causal) {
  ModuleConfig vision, projector, llm;
  vision.name = "vision";
  vision.family = "qwen2-vl";
  vision.config = models::VisionConfig{.depth = 1,
                                       .embed_dim = 8,
                                       .num_heads = 2,
                                       .hidden_size = 12,
                                       .patch_size = 2,
                                       .temporal_patch_size = 1};
  projector.name = "projector";
  projector.family = "mlp";
  projector.config = models::ProjectorConfig{};
  llm.name = "llm";
  llm.family = "llama";
  llm.attention = rule;
  llm.config = models::LlmConfig{.num_hidden_layers = 1,
                                 .hidden_size = 8,
                                 .intermediate_size = 16,
                                 .num_attention_heads = 2,
                                 .num_key_value_heads = 1,
                                 .vocab_size = 32};
  ModelGraph graph;
  graph.modules = {
      {"vision", ModuleKind::encoder, frozen.vision, {ModuleId{1}}, layers("v", 3), 8, 12},
      {"projector", ModuleKind::projector, frozen.projector, {ModuleId{2}}, layers("p", 1), 8, 8},
      {"llm", ModuleKind::llm, frozen.llm, {}, layers("l", 3), 8, 8}};
  return ModelFlops(graph, {vision, projector, llm});
}

SampleShape text() {
  SampleShape sample;
  sample.llm_tokens = 5;
  sample.trained_tokens = 2;
  return sample;
}

SampleShape with_picture() {
  SampleShape sample = text();
  sample.media = {{ModuleId{0}, {{4, 4, 1, 2, 2, 0}}}};
  return sample;
}

double flops_of(Frozen frozen, const SampleShape& sample) {
  return tiny_model(frozen).of({&sample, 1});
}

TEST_CASE("a Llama block's operations are those counted by hand", "[scheduler]") {
  // Five tokens: 2 x 576 x 5 = 5760 in products; 15 pairs under the causal mask: 480. Backward: all
  // products twice, scores and values twice. 2 x 256 x 2 = 1024 in the head: two trained tokens.
  const double block = (5760 + 480) + 5760 + (5760 + 2 * 480);
  const double head = 3 * 1024;
  CHECK(flops_of({}, text()) == block + head);
}

TEST_CASE("a Llama block that attends by modality computes the pairs of its mask", "[scheduler]") {
  // Seven tokens: one of text sees itself, a picture of 3 rows sees 9 pairs, three of text see 5 +
  // 6
  // + 7: 28, which is by chance what causal attention sees. A picture of 5: 1 + 25 + 7.
  SampleShape sample = text();
  sample.llm_tokens = 7;
  const auto with = [&](std::int32_t rows, AttentionRule rule) {
    sample.media = {{ModuleId{0}, {{4, 4, rows, 2, 2, 0}}}};
    sample.markers = {{ModuleId{0}, 1}};
    return tiny_model({}, rule).of({&sample, 1});
  };
  CHECK(with(3, AttentionRule::modality) == with(3, AttentionRule::causal));
  // 32 per pair, forward once and backward twice.
  CHECK(with(5, AttentionRule::modality) - with(5, AttentionRule::causal) == 3 * 32 * (33 - 28));
  // Text alone is causal; so is all that a causal llm reads.
  CHECK(tiny_model({}, AttentionRule::modality).of(std::vector{text()}) == flops_of({}, text()));
}

TEST_CASE("a ViT block's operations are those counted by hand", "[scheduler]") {
  // Four patches: 2 x 768 x 4 = 6144; all 16 pairs: 512. Nothing asks for the gradient of patches:
  // 2 x 96 x 4 = 768 forward and for weights. Merger 2 x 352 x 4 = 2816, three times.
  const double vision = 2 * 768 + (3 * 6144 + 3 * 512) + 3 * 2816;
  const double projector = 3 * 2 * 160;
  CHECK(flops_of({}, with_picture()) - flops_of({}, text()) == vision + projector);
}

TEST_CASE("a frozen encoder runs forward only", "[scheduler]") {
  const double vision = 768 + (6144 + 512) + 2816;
  // The gradient reaches the projector's first matrix through its second, and ends there: 2 x 96 of
  // the 2 x 160 products are not repeated for what came in.
  const double projector = 320 + 320 + (320 - 192);
  CHECK(flops_of({.vision = true}, with_picture()) - flops_of({}, text()) == vision + projector);
  CHECK(flops_of({.vision = true, .projector = true}, with_picture()) - flops_of({}, text()) ==
        vision + 320);
}

TEST_CASE("a frozen llm hands gradients on, and only where something before it trains",
          "[scheduler]") {
  const double forward = 5760 + 480 + 1024;
  const double input_gradients = 5760 + 2 * 480 + 1024;
  const double vision = 768 + (6144 + 512) + 2816;
  const Frozen all_but_projector{.vision = true, .llm = true};
  CHECK(flops_of(all_but_projector, with_picture()) ==
        vision + (320 + 320 + 128) + forward + input_gradients);
  // Nothing of a sample without media asks a frozen llm for a gradient.
  CHECK(flops_of(all_but_projector, text()) == forward);
  CHECK(flops_of({true, true, true}, with_picture()) == vision + 320 + forward);
  // A frozen projector behind a trained encoder: forward, and all of the input's gradient.
  CHECK(flops_of({.projector = true, .llm = true}, with_picture()) ==
        2 * 768 + (3 * 6144 + 3 * 512) + 3 * 2816 + 2 * 320 + forward + input_gradients);
}

TEST_CASE("pictures attend within themselves, samples add up", "[scheduler][property]") {
  const auto count = GENERATE(1, 2, 5);
  const auto model = tiny_model({});
  // Two pictures of four patches: 2 x 16 pairs, not 64; the llm's sequence is the same.
  SampleShape two = with_picture();
  two.media[0].items.push_back(two.media[0].items[0]);
  const auto one = with_picture();
  const double of_text = flops_of({}, text());
  CHECK(model.of({&two, 1}) - of_text == 2 * (model.of({&one, 1}) - of_text));

  const std::vector<SampleShape> batch(static_cast<std::size_t>(count), two);
  CHECK(model.of(batch) == count * model.of({&two, 1}));
  CHECK(model.of({}) == 0);
}

}  // namespace
}  // namespace troupe::scheduler
