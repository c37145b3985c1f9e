#include "models/llama/family.hpp"

#include "models/family/block_work.hpp"
#include "models/family/size_problems.hpp"

namespace troupe::models {

namespace {

using By = TensorSplit::By;

void fields(ConfigFields& v, LlmConfig& x) {
  v.integer("num_hidden_layers", x.num_hidden_layers, 1, 10'000);
  v.integer("hidden_size", x.hidden_size, 1, 1 << 20);
  v.integer("intermediate_size", x.intermediate_size, 1, 1 << 20);
  v.integer("num_attention_heads", x.num_attention_heads, 1, 1 << 20);
  v.integer("num_key_value_heads", x.num_key_value_heads, 1, 1 << 20);
  v.integer("head_dim", x.head_dim, 0, 1 << 20);
  v.integer("vocab_size", x.vocab_size, 1, 1 << 26);
  v.number("rms_norm_eps", x.rms_norm_eps, 1e-30, 1);
  v.number("rope_theta", x.rope_theta, 1, 1e12);
  v.flag("tie_word_embeddings", x.tie_word_embeddings);
}

std::vector<ConfigProblem> problems(const LlmConfig& x) {
  std::vector<ConfigProblem> found;
  const auto add = [&](std::optional<ConfigProblem> problem) {
    if (problem) found.push_back(std::move(*problem));
    return found.empty();
  };
  const bool whole =
      x.head_dim != 0 ||
      add(not_divided("num_attention_heads", x.num_attention_heads, "hidden_size", x.hidden_size));
  if (whole && (x.head_width() % 2 != 0 || x.head_width() == 0))
    add(ConfigProblem{x.head_dim != 0 ? "head_dim" : "num_attention_heads",
                      "a head of " + std::to_string(x.head_width()) +
                          " columns is odd; rotary positions turn pairs",
                      "choose an even head_dim"});
  add(not_divided("num_key_value_heads", x.num_key_value_heads, "num_attention_heads",
                  x.num_attention_heads));
  return found;
}

ModuleSizes sizes(const LlmConfig& x) {
  return {x.num_hidden_layers + 2, x.hidden_size, x.hidden_size, x.vocab_size};
}

LayerDescription describe_block(const std::string& name, const LlmConfig& config) {
  const std::int64_t width = config.hidden_size, inner = config.intermediate_size;
  const std::int64_t queries = std::int64_t{config.num_attention_heads} * config.head_width();
  const std::int64_t keys = std::int64_t{config.num_key_value_heads} * config.head_width();
  LayerDescription block{name, {}};
  const auto matrix = [&](const char* part, std::int64_t out, std::int64_t in, TensorSplit split) {
    block.parameters.push_back({name + part, {out, in}, Initial::normal, false, split});
  };
  // Fewer key heads than ranks: each rank has one, some have the same.
  const TensorSplit by_key_heads{By::output, config.num_key_value_heads};
  matrix(".self_attn.q_proj.weight", queries, width, {By::output});
  matrix(".self_attn.k_proj.weight", keys, width, by_key_heads);
  matrix(".self_attn.v_proj.weight", keys, width, by_key_heads);
  matrix(".self_attn.o_proj.weight", width, queries, {By::input});
  matrix(".mlp.gate_proj.weight", inner, width, {By::output});
  matrix(".mlp.up_proj.weight", inner, width, {By::output});
  matrix(".mlp.down_proj.weight", width, inner, {By::input});
  for (const auto* norm : {".input_layernorm.weight", ".post_attention_layernorm.weight"})
    block.parameters.push_back({name + norm, {width}, Initial::ones});
  return block;
}

ModuleDescription describe(const ModuleConfig& module, const Widths&) {
  const auto& config = module.config.as<LlmConfig>();
  const std::int64_t width = config.hidden_size;
  const auto &name = module.name, model = name + ".model.";
  const ParameterSpec embedding{model + "embed_tokens.weight",
                                {config.vocab_size, width},
                                Initial::normal,
                                false,
                                {By::output, 0, /*padded=*/true}};
  ModuleDescription result{{}, width, 0};
  result.layers.push_back({name + ".embed_tokens", {embedding}});
  for (int i = 0; i < config.num_hidden_layers; ++i) {
    const auto number = "layers." + std::to_string(i);
    result.layers.push_back(describe_block(model + number, config));
    result.layers.back().name = name + "." + number;
  }
  auto head = embedding;
  if (config.tie_word_embeddings)
    head.tied_use = true;
  else
    head.name = name + ".lm_head.weight";
  result.layers.push_back(
      {name + ".head", {{model + "norm.weight", {width}, Initial::ones}, std::move(head)}});
  return result;
}

std::vector<LayerWork> works(const ModuleConfig& module, const Widths&) {
  const auto& c = module.config.as<LlmConfig>();
  const auto& name = module.name;
  const double vocabulary = double(c.vocab_size) * c.hidden_size;
  LayerWork first = dense_work(name + ".embed", vocabulary, c.hidden_size, c.hidden_size);
  first.used_weights = 0;  // A look-up multiplies nothing.
  const AttentionShape attention{c.num_attention_heads, c.num_key_value_heads, c.head_width(),
                                 /*causal=*/true, module.attention == AttentionRule::modality};
  // Rows that were chosen, and the norm of them.
  LayerWork head = dense_work(name + ".head", vocabulary, c.hidden_size, 2.0 * c.hidden_size);
  head.logits = c.vocab_size;
  return surrounded(std::move(first),
                    block_work(name + ".block", c.hidden_size, attention, c.intermediate_size,
                               /*gated=*/true),
                    c.num_hidden_layers, std::move(head));
}

}  // namespace

Family llama() {
  Family family{"llama", ModuleKind::llm, LlmConfig{}};
  family.fields = fields_of(fields);
  family.sizes = asked(sizes);
  family.problems = asked(problems);
  family.describe = describe;
  family.works = works;
  family.takes_masks = true;
  return family;
}

}  // namespace troupe::models
