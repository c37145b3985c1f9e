#include "models/family/family.hpp"

#include <catch2/matchers/catch_matchers_string.hpp>

#include <ATen/ops/arange.h>

#include <functional>
#include <stdexcept>

#include "models/factory.hpp"
#include "models/family/registry.hpp"
#include "models/mlp/family.hpp"
#include "models/qwen2_vl/family.hpp"
#include "models/whisper/family.hpp"
#include "tests/models/added_family.hpp"
#include "tests/torch_catch.hpp"

namespace troupe::models {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("a configuration is a value of any family", "[models]") {
  FamilyConfig first = VisionConfig{.depth = 3};
  const FamilyConfig copy = first;
  CHECK(first.get_if<AudioConfig>() == nullptr);
  REQUIRE(first.get_if<VisionConfig>() != nullptr);
  first.edit<VisionConfig>().depth = 5;
  CHECK(first.as<VisionConfig>().depth == 5);
  CHECK(copy.as<VisionConfig>().depth == 3);
  CHECK_FALSE(first == copy);
  first.edit<VisionConfig>().depth = 3;
  CHECK(first == copy);
  CHECK(first.is_like(copy));
  CHECK_FALSE(first == FamilyConfig(AudioConfig{}));
  CHECK_FALSE(first.is_like(AudioConfig{}));
  CHECK_FALSE(FamilyConfig{} == first);
  CHECK(FamilyConfig{} == FamilyConfig{});
}

/// Notes the keys of a family.
class Keys : public ConfigFields {
 public:
  std::vector<std::string> names;
  /// Every value is set to below its range where its key is this one.
  std::string broken;

  void flag(const char* key, bool&) override { names.emplace_back(key); }
  void integer(const char* key, std::int32_t& x, std::int64_t min, std::int64_t) override {
    names.emplace_back(key);
    if (broken == key) x = static_cast<std::int32_t>(min - 1);
  }
  void number(const char* key, double& x, double min, double) override {
    names.emplace_back(key);
    if (broken == key) x = min - 1;
  }
  void word(const char* key, std::string& x, const std::vector<std::string>&) override {
    names.emplace_back(key);
    if (broken == key) x = "no such word";
  }
};

TEST_CASE("every value outside its range is named", "[models][errors]") {
  for (const auto* family : families()) {
    CAPTURE(family->name);
    CHECK(problems_of(*family, family->defaults).empty());
    Keys keys;
    auto config = family->defaults;
    family->fields(keys, config);
    CHECK_FALSE(keys.names.empty());
    CHECK(config == family->defaults);
    for (const auto& key : keys.names) {
      Keys one;
      one.broken = key;
      auto changed = family->defaults;
      family->fields(one, changed);
      if (changed == family->defaults) continue;  // A flag.
      const auto problems = problems_of(*family, changed);
      REQUIRE(problems.size() == 1);
      CHECK(problems[0].key == key);
      CHECK_FALSE(problems[0].fix.empty());
    }
  }
}

TEST_CASE("a family's answers agree with each other", "[models]") {
  for (const auto* family : families()) {
    CAPTURE(family->name);
    ModuleConfig module{"m", family->kind, family->name, "", false, {}, 0.02, family->defaults};
    const Widths widths{24, 40};
    const auto layers = static_cast<std::size_t>(family->sizes(module.config).layers);
    CHECK(family->describe(module, widths).layers.size() == layers);
    CHECK(family->works(module, widths).size() == layers);
    CHECK((media_input(module).medium != Medium::none) == (family->kind == ModuleKind::encoder));
  }
}

// ---- families that are added

TEST_CASE("a family that is added is one like the others", "[models]") {
  REQUIRE(register_family(added("added-scale")).ok());
  const auto* family = find_family("added-scale");
  REQUIRE(family != nullptr);
  CHECK(families().back() == family);
  const ModuleConfig vision{"vision", ModuleKind::encoder,           "qwen2-vl", "scale", false, {},
                            0.02,     VisionConfig{.hidden_size = 8}};
  const ModuleConfig scale{"scale", ModuleKind::projector, "added-scale", "llm", false, {},
                           0.02,    AddedConfig{}};
  const auto description = describe_module(scale, {vision, scale});
  REQUIRE(description.ok());
  CHECK(description.value().layers[0].parameters[0].name == "scale.scale.weight");
  const auto layer = make_layer(scale, {vision, scale}, 0, {});
  REQUIRE(layer.ok());
  const auto rows = at::arange(8, at::kFloat).view({1, 8});
  CHECK(layer.value()->forward(rows, {}).equal(rows));
  CHECK_THAT(
      family_of(
          {"scale", ModuleKind::projector, "added-scale", "", false, {}, 0.02, ProjectorConfig{}})
          .error()
          .message,
      ContainsSubstring("not the fields of family"));
}

/// What `register_family` says of a family with this fault.
std::string refusal(const std::function<void(Family&)>& fault) {
  auto family = added("added-faulty");
  fault(family);
  const auto status = register_family(std::move(family));
  if (status.ok()) return "registered";
  CHECK(find_family("added-faulty") == nullptr);
  CHECK_FALSE(status.error().fix.empty());
  return status.error().message;
}

TEST_CASE("a family that contradicts itself is refused", "[models][errors]") {
  CHECK_THAT(refusal([](Family& f) { f.name.clear(); }), ContainsSubstring("no name"));
  CHECK_THAT(refusal([](Family& f) { f.name = "My Family"; }),
             ContainsSubstring("'My Family': no name for a job file"));
  CHECK_THAT(refusal([](Family& f) { f.defaults = {}; }), ContainsSubstring("`defaults`"));
  CHECK_THAT(refusal([](Family& f) { f.name = "llama"; }), ContainsSubstring("'llama' already"));
  CHECK_THAT(refusal([](Family& f) { f.fields = {}; }), ContainsSubstring("`fields`"));
  CHECK_THAT(refusal([](Family& f) { f.sizes = {}; }), ContainsSubstring("`sizes`"));
  CHECK_THAT(refusal([](Family& f) { f.describe = {}; }), ContainsSubstring("`describe`"));
  CHECK_THAT(refusal([](Family& f) { f.works = {}; }), ContainsSubstring("`works`"));
  CHECK_THAT(refusal([](Family& f) { f.make = {}; }), ContainsSubstring("`make`"));
  CHECK_THAT(refusal([](Family& f) { f.kind = ModuleKind::encoder; }),
             ContainsSubstring("`media`"));
  CHECK_THAT(refusal([](Family& f) {
               f.kind = ModuleKind::encoder;
               f.media = [](const FamilyConfig&) { return MediaInput{}; };
             }),
             ContainsSubstring("no medium"));
  CHECK_THAT(refusal([](Family& f) { f.defaults = AddedConfig{.width = 65}; }),
             ContainsSubstring("65 is outside 1 .. 64"));
  CHECK_THAT(refusal([](Family& f) {
               f.sizes = [](const FamilyConfig&) { return ModuleSizes{2, 8, 8}; };
             }),
             ContainsSubstring("2 layers, `describe` lists 1 and `works` 1"));
  CHECK_THAT(refusal([](Family& f) {
               f.works = [](const ModuleConfig&, const Widths&) {
                 return std::vector<LayerWork>(2);
               };
             }),
             ContainsSubstring("`works` 2"));
  CHECK_THAT(
      refusal([](Family& f) {
        f.describe = [](const ModuleConfig&, const Widths&) {
          return ModuleDescription{{{"scale", {{"scale.weight", {8}, Initial::ones}}}}, 8, 8};
        };
      }),
      ContainsSubstring("'scale.weight'"));
}

TEST_CASE("a layer that a family does not make is an error", "[models][errors]") {
  const auto made = [](const char* name, auto make) {
    auto family = added(name);
    family.make = make;
    REQUIRE(register_family(std::move(family)).ok());
    const ModuleConfig scale{"scale", ModuleKind::projector, name, "llm", false, {},
                             0.02,    AddedConfig{}};
    const auto layer = make_layer(scale, {scale}, 0, {});
    REQUIRE_FALSE(layer.ok());
    return layer.error().message;
  };
  CHECK_THAT(made("makes-nothing", [](const ModuleConfig&, int,
                                      std::vector<Parameter>) { return std::unique_ptr<Layer>(); }),
             ContainsSubstring("makes no layer 0"));
  CHECK_THAT(made("makes-trouble",
                  [](const ModuleConfig&, int, std::vector<Parameter>) -> std::unique_ptr<Layer> {
                    throw std::runtime_error("no idea");
                  }),
             ContainsSubstring("cannot make layer 0: no idea"));
  CHECK_THAT(made("makes-numbers",
                  [](const ModuleConfig&, int, std::vector<Parameter>) -> std::unique_ptr<Layer> {
                    throw 42;
                  }),
             ContainsSubstring("cannot make layer 0: it throws no std::exception"));
}

}  // namespace
}  // namespace troupe::models
