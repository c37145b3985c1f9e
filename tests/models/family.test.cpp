#include "models/family/family.hpp"

#include <catch2/matchers/catch_matchers_string.hpp>

#include <ATen/ops/arange.h>

#include <functional>
#include <limits>
#include <stdexcept>

#include "models/factory.hpp"
#include "models/family/registry.hpp"
#include "models/mlp/family.hpp"
#include "models/parameter_layer.hpp"
#include "models/qwen2_vl/family.hpp"
#include "models/whisper/family.hpp"
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

struct AddedConfig {
  std::int32_t width = 8;
  friend bool operator==(const AddedConfig&, const AddedConfig&) = default;
};

struct Scale : ParameterLayer {
  using ParameterLayer::ParameterLayer;
  at::Tensor forward(const at::Tensor& rows, const PackedBatch&) override {
    return rows.mul((*this)[0]);
  }
};

/// A projector that scales each column.
Family added(const std::string& name) {
  Family family;
  family.name = name;
  family.kind = ModuleKind::projector;
  family.defaults = AddedConfig{};
  family.fields = fields_of<AddedConfig>(
      [](ConfigFields& v, AddedConfig& x) { v.integer("width", x.width, 1, 64); });
  family.sizes = [](const FamilyConfig& c) {
    const auto width = c.as<AddedConfig>().width;
    return ModuleSizes{1, width, width};
  };
  family.describe = [](const ModuleConfig& module, const Widths&) {
    const std::int64_t width = module.config.as<AddedConfig>().width;
    return ModuleDescription{
        {{module.name + ".scale", {{module.name + ".scale.weight", {width}, Initial::ones}}}},
        width,
        width};
  };
  family.works = [](const ModuleConfig& module, const Widths&) {
    LayerWork work;
    work.kind = module.name + ".scale";
    work.width = module.config.as<AddedConfig>().width;
    return std::vector{work};
  };
  family.make = [](const ModuleConfig&, int, std::vector<Parameter> parameters) {
    return std::unique_ptr<Layer>(std::make_unique<Scale>(std::move(parameters)));
  };
  return family;
}

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

/// An encoder whose answers for widths above 8 are what `fault` makes of them.
Family faulty_encoder(const std::string& name, const std::function<void(Family&)>& fault) {
  auto family = added(name);
  family.kind = ModuleKind::encoder;
  family.media = [](const FamilyConfig&) { return MediaInput{Medium::image}; };
  const auto good = family;
  fault(family);
  const auto is_default = [](const FamilyConfig& c) { return c.as<AddedConfig>().width == 8; };
  const auto faulty = family;
  family = good;
  family.describe = [=](const ModuleConfig& m, const Widths& w) {
    return (is_default(m.config) ? good : faulty).describe(m, w);
  };
  family.works = [=](const ModuleConfig& m, const Widths& w) {
    return (is_default(m.config) ? good : faulty).works(m, w);
  };
  family.media = [=](const FamilyConfig& c) { return (is_default(c) ? good : faulty).media(c); };
  family.update = faulty.update;
  return family;
}

TEST_CASE("a family that contradicts itself for a job's configuration is refused",
          "[models][errors]") {
  int number = 0;
  const auto said = [&](const std::function<void(Family&)>& fault) {
    const auto name = "faulty-" + std::to_string(number++);
    REQUIRE(register_family(faulty_encoder(name, fault)).ok());
    const ModuleConfig module{"eye", ModuleKind::encoder,    name, "llm", false, {},
                              0.02,  AddedConfig{.width = 9}};
    const auto described = describe_module(module, {module});
    return described.ok() ? std::string("described") : described.error().message;
  };
  using Parameters = std::vector<ParameterSpec>;
  const auto with_parameters = [](Parameters parameters) {
    return [parameters](Family& f) {
      f.describe = [parameters](const ModuleConfig&, const Widths&) {
        return ModuleDescription{{{"eye.scale", parameters}}, 9, 9};
      };
    };
  };
  CHECK(said([](Family&) {}) == "described");
  CHECK_THAT(said(with_parameters({{"scale", {9}}})), ContainsSubstring("called 'scale'"));
  CHECK_THAT(said(with_parameters({{"eye.a", {9}}, {"eye.a", {9}}})),
             ContainsSubstring("two parameters are called 'eye.a'"));
  CHECK_THAT(
      said(with_parameters({{"eye.a", {9}, Initial::zeros, false, {TensorSplit::By::output}}})),
      ContainsSubstring("'eye.a' is split over ranks, but no matrix"));
  const auto with_own = [&](ParameterSpec spec, Parameters more = {}) {
    spec.own_update = true;
    more.insert(more.begin(), std::move(spec));
    return [more, describe = with_parameters(more)](Family& f) {
      describe(f);
      f.update = [](const ModuleConfig&, const ParameterUpdate&) {};
    };
  };
  CHECK(said(with_own({"eye.a", {9}, Initial::zeros})) == "described");
  CHECK_THAT(said(with_parameters({{"eye.a", {9}, Initial::zeros, false, {}, true}})),
             ContainsSubstring("'eye.a' is moved by the family itself, and `update` is not set"));
  CHECK_THAT(said(with_own({"eye.a", {9, 9}, Initial::zeros, false, {TensorSplit::By::output}})),
             ContainsSubstring("no such parameter is split over ranks"));
  CHECK_THAT(said(with_own({"eye.a", {9}}, {{"eye.a", {9}, Initial::zeros, true}})),
             ContainsSubstring("no such parameter has a tied use"));
  CHECK_THAT(said(with_own({"eye.a", {8, 4}, Initial::sinusoid})),
             ContainsSubstring("and is a constant"));
  CHECK_THAT(said([](Family& f) {
               f.works = [](const ModuleConfig&, const Widths&) {
                 return std::vector<LayerWork>(2);
               };
             }),
             ContainsSubstring("`works` 2"));
  CHECK_THAT(said([](Family& f) {
               f.works = [](const ModuleConfig&, const Widths&) {
                 LayerWork work;
                 work.kind = "block";
                 return std::vector{work};
               };
             }),
             ContainsSubstring("of kind 'block'"));
  const auto with_weights = [](double weights) {
    return [weights](Family& f) {
      f.works = [weights](const ModuleConfig&, const Widths&) {
        LayerWork work;
        work.kind = "eye.scale";
        work.weights = weights;
        return std::vector{work};
      };
    };
  };
  CHECK(said(with_weights(0)) == "described");
  for (const double weights :
       {-1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
    CHECK_THAT(said(with_weights(weights)),
               ContainsSubstring("of kind 'eye.scale' has a figure that is below zero"));
  CHECK_THAT(said([](Family& f) {
               f.describe = [](const ModuleConfig&, const Widths&) {
                 return ModuleDescription{{{"eye.scale", {{"eye.a", {9}}}}}, 9, 10};
               };
             }),
             ContainsSubstring("of 10 by `describe`"));
  const auto said_of = [&](const MediaInput& media) {
    return said([media](Family& f) { f.media = [media](const FamilyConfig&) { return media; }; });
  };
  CHECK_THAT(said_of({Medium::audio, {}, {.frames_per_row = 0}}),
             ContainsSubstring("not positive"));
  const auto said_of_scale = [&](double mean, double deviation) {
    return said_of({Medium::image, {.scale = {{0, mean, 0}, {1, deviation, 1}}}});
  };
  CHECK(said_of_scale(-1000, 1e6) == "described");
  const auto said_of_square = [&](ResizeMode mode, std::int32_t side) {
    return said_of({Medium::image, {.resize = {mode, side}}});
  };
  CHECK(said_of_square(ResizeMode::crop, 28) == "described");  // One merged patch.
  CHECK(said_of_square(ResizeMode::stretch, 8192) == "described");
  for (const std::int32_t side : {0, 27, 8193})
    CHECK_THAT(said_of_square(ResizeMode::stretch, side), ContainsSubstring("outside 28"));
  CHECK_THAT(said_of_square(ResizeMode::by_area, 336), ContainsSubstring("set `resize.mode`"));
  using Limits = std::numeric_limits<double>;
  for (const double mean : {2000.0, Limits::quiet_NaN()})
    CHECK_THAT(said_of_scale(mean, 1), ContainsSubstring("a mean outside -1000 to 1000"));
  for (const double deviation : {0.0, -1.0, Limits::infinity(), Limits::quiet_NaN()})
    CHECK_THAT(said_of_scale(0, deviation), ContainsSubstring("a deviation outside 1e-6 to 1e6"));
  CHECK_THAT(
      said([](Family& f) {
        f.works = [](const ModuleConfig&, const Widths&) -> std::vector<LayerWork> {
          throw std::runtime_error("no idea");
        };
      }),
      ContainsSubstring("`works` of family 'faulty-") && ContainsSubstring("' throws: no idea"));
}

TEST_CASE("layers of one kind that cost unlike each other are refused", "[models][errors]") {
  const auto said = [](double second) {
    return refusal([second](Family& f) {
      f.name = second == 1 ? "added-alike" : "added-faulty";
      f.sizes = [](const FamilyConfig&) { return ModuleSizes{2, 8, 8}; };
      f.describe = [](const ModuleConfig& module, const Widths&) {
        const std::string name = module.name + ".scale";
        return ModuleDescription{
            {{name, {{name + ".a", {8}}}}, {name, {{name + ".b", {8}}}}}, 8, 8};
      };
      f.works = [second](const ModuleConfig& module, const Widths&) {
        std::vector<LayerWork> works(2);
        works[0].kind = works[1].kind = module.name + ".scale";
        works[0].weights = 1;
        works[1].weights = second;
        return works;
      };
    });
  };
  CHECK(said(1) == "registered");
  CHECK_THAT(said(2), ContainsSubstring("two layers of kind 'module.scale' have other costs"));
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
