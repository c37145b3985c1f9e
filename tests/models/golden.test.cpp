// Outputs and gradients of every family against the transformers library, from the files that
// tests/reference/models/make_golden.py makes. Configurations here repeat that script's.

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/index_select.h>

#include "models/llama/family.hpp"
#include "models/llama_logits.hpp"
#include "models/mlp/family.hpp"
#include "models/qwen2_vl/family.hpp"
#include "models/text_batch.hpp"
#include "models/whisper/family.hpp"
#include "runtime/state/safetensors.hpp"
#include "tests/models/chain.hpp"
#include "tests/torch_catch.hpp"

// After LibTorch's headers, some of which use the macros that this one removes.

#include <catch2/generators/catch_generators.hpp>

using namespace troupe;
using namespace troupe::models;

namespace {

struct Golden {
  state::TensorMap tensors;
  std::string module;
  at::ScalarType dtype;
  double tolerance;

  const at::Tensor& operator[](const std::string& name) const { return tensors.at(name); }

  // The largest difference, relative to the largest expected value.
  void check_close(const std::string& name, const at::Tensor& actual, const at::Tensor& expected,
                   double floor = 0) const {
    INFO(module << " " << name);
    REQUIRE(actual.sizes() == expected.sizes());
    const auto scale = std::max(expected.abs().max().item<double>(), floor);
    const auto difference = actual.detach().to(at::kDouble).sub(expected).abs().max();
    CHECK(difference.item<double>() <= tolerance * scale);
  }

  // Every trained parameter has the gradient of the file; tied uses are summed first.
  void check_gradients(const Chain& chain, const std::string& prefix) const {
    std::map<std::string, at::Tensor> gradients;
    for (const auto& parameter : chain.parameters()) {
      if (!parameter.value.requires_grad()) continue;
      auto& sum = gradients[parameter.name];
      REQUIRE(parameter.value.grad().defined());
      sum = sum.defined() ? sum.add(parameter.value.grad()) : parameter.value.grad();
    }
    double largest = 0;
    for (const auto& [name, gradient] : gradients)
      largest = std::max(
          largest, (*this)[prefix + name.substr(module.size() + 1)].abs().max().item<double>());
    // Some true gradients are zero (key biases), so small tensors are measured on a common floor.
    for (const auto& [name, gradient] : gradients) {
      const auto key = prefix + name.substr(module.size() + 1);
      check_close(key, gradient, (*this)[key], 1e-3 * largest);
    }
  }
};

Golden open_golden(const std::string& file, const std::string& module, bool narrow) {
  auto tensors = state::read_safetensors("tests/reference/models/golden/" + file + ".safetensors");
  if (!tensors) FAIL(to_string(tensors.error()));
  return {std::move(tensors).value(), module, narrow ? at::kFloat : at::kDouble,
          narrow ? 2e-5 : 1e-9};
}

Chain load_chain(const Golden& golden, const ModuleConfig& module,
                 const std::vector<ModuleConfig>& all) {
  auto chain = make_chain(module, all, {.dtype = golden.dtype, .device = at::kCPU});
  const at::NoGradGuard no_grad;
  for (auto& parameter : chain.parameters())
    if (parameter.value.requires_grad())
      parameter.value.copy_(golden[parameter.name.substr(module.name.size() + 1)]);
  return chain;
}

at::Tensor probe_loss(const at::Tensor& output) {
  const auto probe = at::arange(output.numel(), at::kDouble).cos().view(output.sizes());
  return output.mul(probe.to(output.scalar_type())).sum();
}

std::vector<std::int64_t> to_vector(const at::Tensor& tensor) {
  const auto* data = tensor.const_data_ptr<std::int64_t>();
  return {data, data + tensor.numel()};
}

ModuleConfig& named(std::vector<ModuleConfig>& all, const std::string& name) {
  for (auto& module : all)
    if (module.name == name) return module;
  FAIL("no module " << name);
  return all[0];
}

void check_llama(const Golden& golden, const LlmConfig& config) {
  auto all = small_model();
  auto& module = named(all, "llm");
  module.config = config;
  auto chain = load_chain(golden, module, all);
  auto media = golden["input.media.rows"].to(golden.dtype).set_requires_grad(true);
  std::vector<TokenSample> samples;
  for (const auto tokens : to_vector(golden["input.samples"])) samples.push_back({tokens, {}});
  auto batch = text_batch(samples, AttentionRule::causal).value();
  batch.input = golden["input.ids"];
  batch.labels = golden["input.labels"];
  // Two encoders, so that rows come from more than one place.
  const auto positions = golden["input.media_positions"];
  batch.media = {{positions.narrow(0, 4, 2), media.narrow(0, 4, 2)},
                 {positions.narrow(0, 0, 4), media.narrow(0, 0, 4)}};

  at::Tensor rows;
  for (std::size_t i = 0; i + 1 < chain.layers.size(); ++i)
    rows = chain.layers[i]->forward(rows, batch);
  golden.check_close("logits", head_logits(*chain.layers.back(), rows), golden["output.logits"]);
  const auto losses = chain.layers.back()->forward(rows, batch);
  golden.check_close("losses", losses, golden["output.losses"]);

  losses.sum().backward();
  golden.check_gradients(chain, "grad.");
  golden.check_close("media", media.grad(), golden["grad.media"]);
}

}  // namespace

TEST_CASE("the vision transformer equals Qwen2-VL's", "[models][golden]") {
  const auto golden = open_golden("qwen2_vl", "vision", GENERATE(false, true));
  auto all = small_model();
  auto& module = named(all, "vision");
  module.config = VisionConfig{.depth = 2,
                               .embed_dim = 16,
                               .num_heads = 2,
                               .mlp_ratio = 3,
                               .hidden_size = 24,
                               .patch_size = 4};
  auto chain = load_chain(golden, module, all);
  PackedBatch batch;
  const auto grids = to_vector(golden["input.grids"]);
  for (std::size_t i = 0; i < grids.size(); i += 2) {
    batch.grids.push_back({grids[i], grids[i + 1]});
    batch.segments.push_back(grids[i] * grids[i + 1]);
  }
  batch.input = golden["input.patches"];

  const auto output = chain.forward(batch);
  golden.check_close("rows", output, golden["output.rows"]);
  probe_loss(output).backward();
  golden.check_gradients(chain, "grad.");
}

TEST_CASE("the audio encoder equals Whisper's for a full window and for packed short ones",
          "[models][golden]") {
  const auto golden = open_golden("whisper", "audio", GENERATE(false, true));
  auto all = small_model();
  auto& module = named(all, "audio");
  module.config = AudioConfig{.encoder_layers = 2,
                              .d_model = 16,
                              .encoder_attention_heads = 2,
                              .encoder_ffn_dim = 40,
                              .num_mel_bins = 8,
                              .max_source_positions = 1500};
  auto chain = load_chain(golden, module, all);

  PackedBatch full;
  full.input = golden["input.full"];
  full.input_segments = {3000};
  full.segments = {1500};
  const auto output = chain.forward(full);
  golden.check_close("full rows", output.index_select(0, at::arange(0, 1500, 50)),
                     golden["output.full_every_50th"]);
  probe_loss(output).backward();
  golden.check_gradients(chain, "full_grad.");

  chain.clear_gradients();
  PackedBatch packed;
  packed.input = golden["input.frames"];
  packed.input_segments = to_vector(golden["input.windows"]);
  for (const auto frames : packed.input_segments) packed.segments.push_back((frames + 1) / 2);
  const auto rows = chain.forward(packed);
  golden.check_close("rows", rows, golden["output.rows"]);
  probe_loss(rows).backward();
  golden.check_gradients(chain, "grad.");
}

TEST_CASE("the projector equals LLaVA's", "[models][golden]") {
  const auto golden = open_golden("llava_projector", "vision_projector", GENERATE(false, true));
  auto all = small_model();
  auto& module = named(all, "vision_projector");
  module.config = ProjectorConfig{12, 20, 20};
  named(all, "vision").config.edit<VisionConfig>().hidden_size = 12;
  named(all, "llm").config = LlmConfig{.hidden_size = 20, .num_attention_heads = 2};
  auto chain = load_chain(golden, module, all);
  auto input = golden["input.features"].to(golden.dtype).set_requires_grad(true);

  const auto output = chain.forward({}, input);
  golden.check_close("rows", output, golden["output.rows"]);
  probe_loss(output).backward();
  golden.check_gradients(chain, "grad.");
  golden.check_close("input", input.grad(), golden["grad.input"]);
}

TEST_CASE("the decoder equals Llama's, packed and with media rows", "[models][golden]") {
  check_llama(open_golden("llama", "llm", GENERATE(false, true)), {.num_hidden_layers = 2,
                                                                   .hidden_size = 24,
                                                                   .intermediate_size = 40,
                                                                   .num_attention_heads = 4,
                                                                   .num_key_value_heads = 2,
                                                                   .vocab_size = 37,
                                                                   .rope_theta = 500});
}

TEST_CASE("the decoder with a tied head and its own head size equals Llama's", "[models][golden]") {
  check_llama(open_golden("llama_tied", "llm", GENERATE(false, true)),
              {.num_hidden_layers = 2,
               .hidden_size = 24,
               .intermediate_size = 40,
               .num_attention_heads = 4,
               .num_key_value_heads = 2,
               .head_dim = 10,
               .vocab_size = 37,
               .rope_theta = 500,
               .tie_word_embeddings = true});
}
