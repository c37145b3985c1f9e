// What authors of families build on: parts of models/plugin.hpp and models/built_on.hpp.

#include "tests/torch_catch.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "models/built_on.hpp"
#include "models/llama/family.hpp"
#include "models/plugin.hpp"

namespace troupe::models {
namespace {

/// A llama with a key of its own.
struct Doubled {
  LlmConfig llama;
  double more = 0.5;
  friend bool operator==(const Doubled&, const Doubled&) = default;
};

void fields(ConfigFields& v, Doubled& x) { v.number("more", x.more, 0, 1); }

struct Last : ParameterLayer {
  Last(const Doubled& config, std::vector<Parameter> list)
      : ParameterLayer(std::move(list)), more(config.more) {}
  at::Tensor forward(const at::Tensor& rows, const PackedBatch&) override { return rows; }
  const double more;
};

/// Sets two keys, and notes all.
struct SetTwo : ConfigFields {
  std::vector<std::string> names;
  void flag(const char* key, bool&) override { names.emplace_back(key); }
  void integer(const char* key, std::int32_t& x, std::int64_t, std::int64_t) override {
    names.emplace_back(key);
    if (std::string(key) == "num_hidden_layers") x = 7;
  }
  void number(const char* key, double& x, double, double) override {
    names.emplace_back(key);
    if (std::string(key) == "more") x = 0.75;
  }
  void word(const char* key, std::string&, const std::vector<std::string>&) override {
    names.emplace_back(key);
  }
};

ModuleConfig llm(const std::string& family, FamilyConfig config) {
  ModuleConfig module;
  module.name = "llm";
  module.family = family;
  module.config = std::move(config);
  return module;
}

std::vector<std::string> names_of(const ModuleDescription& description) {
  std::vector<std::string> names;
  for (const LayerDescription& layer : description.layers) {
    names.push_back(layer.name);
    for (const ParameterSpec& parameter : layer.parameters) names.push_back(parameter.name);
  }
  return names;
}

std::vector<Parameter> zeros_for(const LayerDescription& layer) {
  std::vector<Parameter> list;
  for (const ParameterSpec& parameter : layer.parameters)
    list.push_back({parameter.name, at::zeros(parameter.shape, at::kDouble)});
  return list;
}

TEST_CASE("a family that is built on another has its layers, sizes and keys beside its own",
          "[models]") {
  const Family& llama = *find_family("llama");
  Family family = built_on(llama, "doubled", &Doubled::llama, fields);
  end_with<Doubled, Last>(family);
  CHECK(family.name == "doubled");
  CHECK(family.kind == ModuleKind::llm);
  CHECK(family.takes_masks == llama.takes_masks);
  CHECK((family.defaults == FamilyConfig(Doubled{llama.defaults.as<LlmConfig>()})));

  SetTwo visitor, alone;
  FamilyConfig read = family.defaults, theirs = llama.defaults;
  family.fields(visitor, read);
  llama.fields(alone, theirs);
  CHECK(read.as<Doubled>().llama.num_hidden_layers == 7);
  CHECK(read.as<Doubled>().more == 0.75);
  alone.names.emplace_back("more");
  CHECK(visitor.names == alone.names);

  Doubled config{{.num_hidden_layers = 2, .vocab_size = 40}, 0.25};
  const auto own = llm("doubled", config), plain = llm("llama", config.llama);
  CHECK(family.sizes(own.config).layers == 4);
  CHECK(family.sizes(own.config).vocabulary == 40);
  const auto described = family.describe(own, {});
  CHECK(names_of(described) == names_of(llama.describe(plain, {})));
  const auto works = family.works(own, {}), expected = llama.works(plain, {});
  REQUIRE(works.size() == expected.size());
  for (std::size_t i = 0; i < works.size(); ++i) CHECK(works[i].kind == expected[i].kind);
  CHECK(family.problems(own.config).empty());
  config.llama.num_attention_heads = 3;
  CHECK_FALSE(family.problems(FamilyConfig(config)).empty());

  for (const int index : {0, 1, 2}) {
    const auto layer =
        family.make(own, index, zeros_for(described.layers[static_cast<std::size_t>(index)]));
    REQUIRE(layer != nullptr);
    CHECK(dynamic_cast<Last*>(layer.get()) == nullptr);
  }
  const auto last = family.make(own, 3, zeros_for(described.layers[3]));
  REQUIRE(dynamic_cast<Last*>(last.get()) != nullptr);
  CHECK(dynamic_cast<Last*>(last.get())->more == 0.25);
  CHECK(last->parameters().size() == described.layers[3].parameters.size());
}

TEST_CASE("a family that is built on another of the same configuration is the same by its name",
          "[models]") {
  const Family& llama = *find_family("llama");
  const Family family = built_on(llama, "other");
  const auto own = llm("other", LlmConfig{.num_hidden_layers = 1});
  CHECK(family.sizes(own.config).layers == 3);
  const auto described = family.describe(own, {});
  CHECK(names_of(described) == names_of(llama.describe(llm("llama", own.config), {})));
  CHECK(family.make(own, 2, zeros_for(described.layers[2])) != nullptr);
}

TEST_CASE("what is made of segments stands one below the other", "[models]") {
  const at::Tensor rows = at::arange(5, at::kDouble).view({5, 1});
  const auto sum = [&](std::int64_t begin, std::int64_t length) {
    return rows.narrow(0, begin, length).sum().view({1, 1});
  };
  // 0 + 1, then 2 + 3 + 4.
  const at::Tensor made = by_segment({2, 3}, rows.narrow(0, 0, 0), sum);
  REQUIRE(made.sizes() == at::IntArrayRef({2, 1}));
  CHECK(made[0].item<double>() == 1);
  CHECK(made[1].item<double>() == 9);
  CHECK(by_segment({}, rows.narrow(0, 0, 0), sum).sizes() == at::IntArrayRef({0, 1}));
}

TEST_CASE("a linear layer takes rows, or as the first one the media", "[models]") {
  LinearLayer layer(
      {{"w", at::full({1, 2}, 2, at::kDouble)}, {"b", at::full({1}, 1, at::kDouble)}});
  PackedBatch batch;
  batch.input = at::full({3, 2}, 10, at::kFloat);  // Cast to the weights' type.
  const at::Tensor first = layer.forward({}, batch);
  CHECK(at::equal(first, at::full({3, 1}, 41, at::kDouble)));
  CHECK(at::equal(layer.forward(at::full({1, 2}, 1, at::kDouble), batch),
                  at::full({1, 1}, 5, at::kDouble)));
}

struct Plain {
  std::int32_t depth = 2, width = 6;
  friend bool operator==(const Plain&, const Plain&) = default;
};

TEST_CASE("an encoder is made of functions of its configuration", "[models]") {
  EncoderParts<Plain> parts;
  parts.fields = [](ConfigFields& v, Plain& x) { v.integer("depth", x.depth, 1, 9); };
  parts.sizes = [](const Plain& x) { return ModuleSizes{x.depth + 2, 0, x.width}; };
  parts.media = [](const Plain&) { return MediaInput{Medium::image, {14, 1, 1}}; };
  parts.describe = [](const std::string& module, const Plain& x) {
    auto layers = surrounded_layers(module, "first", "inner", x.depth, "last");
    for (auto& layer : layers) add_linear(layer, layer.name, x.width, x.width);
    return ModuleDescription{std::move(layers), x.width, x.width};
  };
  parts.works = [](const std::string& module, const Plain& x) {
    const auto work = [&](const char* kind) { return dense_work(module + kind, 1, x.width, 1); };
    return surrounded(work(".first"), work(".inner"), x.depth, work(".last"));
  };
  parts.make = [](const Plain&, int, std::vector<Parameter> list) -> std::unique_ptr<Layer> {
    return std::make_unique<LinearLayer>(std::move(list));
  };
  const Family family = encoder_family("plain", parts);
  CHECK(family.kind == ModuleKind::encoder);
  CHECK_FALSE(family.problems);
  const ModuleConfig module = llm("plain", Plain{.depth = 2});
  CHECK(names_of(family.describe(module, {})) ==
        std::vector<std::string>{"llm.first", "llm.first.weight", "llm.first.bias", "llm.inner.0",
                                 "llm.inner.0.weight", "llm.inner.0.bias", "llm.inner.1",
                                 "llm.inner.1.weight", "llm.inner.1.bias", "llm.last",
                                 "llm.last.weight", "llm.last.bias"});
  CHECK(family.works(module, {}).size() == 4);
  CHECK(family.media(module.config).medium == Medium::image);
  parts.problems = [](const Plain&) { return std::vector<ConfigProblem>{{"depth", "no", "yes"}}; };
  CHECK(encoder_family("plain", parts).problems(module.config).size() == 1);
}

}  // namespace
}  // namespace troupe::models
