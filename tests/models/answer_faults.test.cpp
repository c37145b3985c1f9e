#include "models/family/answer_faults.hpp"

#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "models/family/registry.hpp"
#include "tests/models/added_family.hpp"
#include "tests/torch_catch.hpp"

namespace troupe::models {
namespace {

using Catch::Matchers::ContainsSubstring;

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
  CHECK_THAT(said(with_parameters({{"eye.", {9}}})), ContainsSubstring("called 'eye.'"));
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
               ContainsSubstring("of kind 'eye.scale' has weights = "));
  CHECK_THAT(said([](Family& f) {
               f.describe = [](const ModuleConfig&, const Widths&) {
                 return ModuleDescription{{{"eye.scale", {{"eye.a", {9}}}}}, 9, 10};
               };
             }),
             ContainsSubstring("of 10 by `describe`"));
  const auto said_of = [&](const MediaInput& media) {
    return said([media](Family& f) { f.media = [media](const FamilyConfig&) { return media; }; });
  };
  struct Case {
    MediaInput media;
    std::string words;
  };
  for (const Case& one :
       {Case{{Medium::image, {.patch_size = 0}}, "has vision.patch_size = 0, outside 1 to 8192"},
        Case{{Medium::image, {.merge_size = 8193}}, "has vision.merge_size = 8193, outside 1 to"},
        Case{{Medium::image, {.temporal_patch_size = -2}}, "vision.temporal_patch_size = -2, "},
        Case{{Medium::image, {.rows_per_image = -1}}, "has vision.rows_per_image = -1, outside 0"},
        Case{{Medium::image, {.rows_per_image = 1'000'001}}, "= 1000001, outside 0 to 1000000"},
        Case{{Medium::audio, {}, {.mel_bins = 202}}, "has audio.mel_bins = 202, outside 1 to 201"},
        Case{{Medium::audio, {}, {.frames_per_row = 0}}, "has audio.frames_per_row = 0, outside 1"},
        Case{{Medium::audio, {}, {.pooled_rows = 0}}, "has audio.pooled_rows = 0, outside 1 to"},
        Case{{Medium::audio, {}, {.rows_per_window = -3}}, "has audio.rows_per_window = -3, "},
        Case{{Medium::image, {.patch_size = 4096, .merge_size = 32}},
             "merges patches to squares of 131072 pixels, above 65536"},
        Case{{Medium::image, {.patch_size = 8192, .temporal_patch_size = 64}},
             "cuts patches of 12884901888 columns, above 2147483647"}})
    CHECK_THAT(said_of(one.media), ContainsSubstring("`media` ") && ContainsSubstring(one.words));
  CHECK(said_of({Medium::image, {.patch_size = 1024, .merge_size = 64}}) == "described");
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
    CHECK_THAT(said_of_scale(mean, 1),
               ContainsSubstring("by a mean of ") && ContainsSubstring(", outside -1000 to 1000"));
  for (const double deviation : {0.0, -1.0, Limits::infinity(), Limits::quiet_NaN()})
    CHECK_THAT(said_of_scale(0, deviation), ContainsSubstring("by a deviation of ") &&
                                                ContainsSubstring(", outside 1e-6 to 1e6"));
  CHECK_THAT(
      said([](Family& f) {
        f.works = [](const ModuleConfig&, const Widths&) -> std::vector<LayerWork> {
          throw std::runtime_error("no idea");
        };
      }),
      ContainsSubstring("`works` of family 'faulty-") && ContainsSubstring("' throws: no idea"));
}

/// What a layer costs that nothing is wrong with.
LayerWork fine_work() {
  LayerWork work;
  work.kind = "eye.scale";
  return work;
}

/// An encoder with this description for widths above 8, and what is said of it then. `work`: of
/// each layer.
std::string said_of_layers(const std::string& family, std::vector<LayerDescription> layers,
                           const LayerWork& work = fine_work()) {
  const std::size_t count = layers.size();
  Family made = faulty_encoder(family, [&](Family& f) {
    f.describe = [layers](const ModuleConfig&, const Widths&) {
      return ModuleDescription{layers, 9, 9};
    };
    f.works = [count, work](const ModuleConfig&, const Widths&) {
      return std::vector(count, work);
    };
  });
  made.sizes = [count](const FamilyConfig& c) {
    const auto width = c.as<AddedConfig>().width;
    return ModuleSizes{width == 8 ? 1 : static_cast<std::int32_t>(count), width, width};
  };
  REQUIRE(register_family(std::move(made)).ok());
  const ModuleConfig module{"eye", ModuleKind::encoder,    family, "llm", false, {},
                            0.02,  AddedConfig{.width = 9}};
  const auto described = describe_module(module, {module});
  if (described.ok()) return "described";
  CHECK(described.error().where == "modules.eye.family");
  CHECK_THAT(described.error().message, ContainsSubstring("family '" + family + "': "));
  return described.error().message;
}

TEST_CASE("parameters that no tensors can be are refused with their shape", "[models][errors]") {
  int number = 0;
  const auto said = [&](std::vector<std::int64_t> shape) {
    return said_of_layers("shaped-" + std::to_string(number++),
                          {{"eye.scale", {{"eye.a", std::move(shape)}}}});
  };
  CHECK(said({}) == "described");  // One number.
  CHECK(said({1 << 24, 1 << 24}) == "described");
  const auto sides = "; sides are 1 at least, and elements 281474976710656 at most";
  struct Case {
    std::vector<std::int64_t> shape;
    std::string words;
  };
  for (const Case& one :
       {Case{{0}, "0"}, Case{{9, 0, 2}, "9 x 0 x 2"}, Case{{-2, -3}, "-2 x -3"},
        Case{{1 << 24, (1 << 24) + 1}, "16777216 x 16777217"},
        Case{{std::int64_t{1} << 32, std::int64_t{1} << 32}, "4294967296 x 4294967296"}})
    CHECK_THAT(said(one.shape), ContainsSubstring("'eye.a' has the shape " + one.words + sides));
}

TEST_CASE("second uses of parameters are refused that are none", "[models][errors]") {
  int number = 0;
  const auto said = [&](ParameterSpec owned, ParameterSpec second) {
    second.tied_use = true;
    return said_of_layers("tied-" + std::to_string(number++),
                          {{"eye.0", {std::move(owned)}}, {"eye.1", {std::move(second)}}});
  };
  CHECK(said({"eye.a", {9, 4}}, {"eye.a", {9, 4}}) == "described");
  CHECK_THAT(said({"eye.b", {9, 4}}, {"eye.a", {9, 4}}),
             ContainsSubstring("'eye.a' is a tied use, and no layer before has that parameter"));
  CHECK_THAT(said({"eye.a", {9, 4}}, {"eye.a", {36}}),
             ContainsSubstring("'eye.a' is a tied use of the shape 36, of a parameter of 9 x 4"));
  CHECK_THAT(said({"eye.a", {9, 4}}, {"eye.a", {9, 4}, Initial::zeros}),
             ContainsSubstring("'eye.a' is a tied use that begins with other values"));
  ParameterSpec second{"eye.a", {9}};
  second.tied_use = true;
  CHECK_THAT(said_of_layers("tied-in-one", {{"eye.scale", {{"eye.a", {9}}, second}}}),
             ContainsSubstring("no layer before has that parameter"));
}

TEST_CASE("layers that profiles could not tell apart are refused", "[models][errors]") {
  int number = 0;
  const auto said = [&](const std::string& first, const std::string& second) {
    return said_of_layers("named-" + std::to_string(number++),
                          {{first, {{"eye.a", {9}}}}, {second, {{"eye.b", {9}}}}});
  };
  CHECK(said("eye.0", "eye.1") == "described");
  CHECK_THAT(said("eye.0", "eye.0"), ContainsSubstring("two layers are called 'eye.0'"));
  for (const std::string name : {"", "eye", "eye.", "ear.1"})
    CHECK_THAT(said("eye.0", name), ContainsSubstring("a layer is called '" + name + "'; its "));
}

TEST_CASE("a layer may do without parameters", "[models]") {
  CHECK(said_of_layers("without", {{"eye.scale", {}}}) == "described");
}

TEST_CASE("work that planners cannot count with is refused with its figure", "[models][errors]") {
  int number = 0;
  const auto said = [&](const std::function<void(LayerWork&)>& edit) {
    LayerWork work = fine_work();
    edit(work);
    return said_of_layers("worked-" + std::to_string(number++), {{"eye.scale", {{"eye.a", {9}}}}},
                          work);
  };
  const std::string has = "the work of kind 'eye.scale' has ";
  CHECK_THAT(said([](LayerWork& x) { x.kind = "eye."; }), ContainsSubstring("of kind 'eye.'"));
  CHECK_THAT(said([](LayerWork& x) { x.used_weights = -2.5; }),
             ContainsSubstring(has + "used_weights = -2.500000; "));
  CHECK_THAT(said([](LayerWork& x) { x.activation_elements = HUGE_VAL; }),
             ContainsSubstring(has + "activation_elements = inf; "));
  CHECK_THAT(said([](LayerWork& x) { x.entry_weights = std::nan(""); }),
             ContainsSubstring(has + "entry_weights = nan; "));
  CHECK_THAT(said([](LayerWork& x) { x.width = -1; }), ContainsSubstring(has + "width = -1; "));
  CHECK_THAT(said([](LayerWork& x) { x.logits = -7; }), ContainsSubstring(has + "logits = -7; "));
  CHECK_THAT(said([](LayerWork& x) { x.joined_rows = 0; }),
             ContainsSubstring(has + "joined_rows = 0; "));
  CHECK(said([](LayerWork& x) { x.used_weights = x.entry_weights = 5; }) == "described");
  CHECK_THAT(said([](LayerWork& x) { x.used_weights = 4, x.entry_weights = 5; }),
             ContainsSubstring(has + "entry_weights = 5.000000 and used_weights = 4.000000"));
  const auto said_of_heads = [&](std::int64_t heads, std::int64_t kv_heads, std::int64_t columns) {
    return said([=](LayerWork& x) { x.attention = AttentionShape{heads, kv_heads, columns}; });
  };
  CHECK(said_of_heads(4, 2, 8) == "described");
  CHECK_THAT(said_of_heads(0, 1, 8), ContainsSubstring(has + "0 heads of 8 columns and 1 key-"));
  CHECK_THAT(said_of_heads(4, 0, 8), ContainsSubstring(has + "4 heads of 8 columns and 0 key-"));
  CHECK_THAT(said_of_heads(4, 2, 0), ContainsSubstring(has + "4 heads of 0 columns and 2 key-"));
  CHECK_THAT(said_of_heads(4, 3, 8), ContainsSubstring(has + "4 heads of 8 columns and 3 key-"));
}

TEST_CASE("rows without columns are refused", "[models][errors]") {
  int number = 0;
  const auto said = [&](ModuleKind kind, ModuleSizes sizes, std::int64_t hidden,
                        std::int64_t output) -> std::string {
    Family family = added("columns-" + std::to_string(number++));
    family.kind = kind;
    family.sizes = [sizes](const FamilyConfig&) { return sizes; };
    family.describe = [=](const ModuleConfig& module, const Widths&) {
      ModuleDescription made{{}, hidden, output};
      for (std::int32_t i = 0; i < sizes.layers; ++i)
        made.layers.push_back({module.name + "." + std::to_string(i), {}});
      return made;
    };
    family.works = [sizes](const ModuleConfig& module, const Widths&) {
      LayerWork work;
      work.kind = module.name + ".scale";
      return std::vector(static_cast<std::size_t>(std::max(0, sizes.layers)), work);
    };
    const auto status = register_family(std::move(family));
    return status.ok() ? "registered" : status.error().message;
  };
  const auto projector = ModuleKind::projector, llm = ModuleKind::llm;
  CHECK(said(projector, {1, 0, 0}, 0, 128) == "registered");  // The llm's columns.
  CHECK(said(projector, {2, 8, 8}, 3, 8) == "registered");
  CHECK(said(llm, {2, 8, 8, 300}, 8, 0) == "registered");
  CHECK_THAT(said(projector, {1, -1, 8}, 8, 8), ContainsSubstring("`sizes` says input_width = -1"));
  CHECK_THAT(said(projector, {1, 8, -2}, 8, 128),
             ContainsSubstring("`sizes` says output_width = -2"));
  CHECK_THAT(said(llm, {2, 8, 0, 300}, 8, 0), ContainsSubstring("`sizes` says output_width = 0"));
  CHECK_THAT(said(projector, {2, 8, 8}, 0, 8),
             ContainsSubstring("`describe` says hidden_width = 0"));
  CHECK_THAT(said(llm, {1, 8, 8, 300}, -4, 0),
             ContainsSubstring("`describe` says hidden_width = -4"));
  CHECK_THAT(said(projector, {-3, 8, 8}, 8, 8),
             ContainsSubstring("`sizes` says -3 layers, `describe` lists 0 and `works` 0"));
}

TEST_CASE("layers of one kind that cost unlike each other are refused", "[models][errors]") {
  const auto said = [](double second) {
    Family family = added(second == 1 ? "added-alike" : "added-unlike");
    family.sizes = [](const FamilyConfig&) { return ModuleSizes{2, 8, 8}; };
    family.describe = [](const ModuleConfig& module, const Widths&) {
      const std::string name = module.name + ".scale";
      return ModuleDescription{
          {{name + ".0", {{name + ".a", {8}}}}, {name + ".1", {{name + ".b", {8}}}}}, 8, 8};
    };
    family.works = [second](const ModuleConfig& module, const Widths&) {
      std::vector<LayerWork> works(2);
      works[0].kind = works[1].kind = module.name + ".scale";
      works[0].weights = 1;
      works[1].weights = second;
      return works;
    };
    const auto status = register_family(std::move(family));
    return status.ok() ? std::string("registered") : status.error().message;
  };
  CHECK(said(1) == "registered");
  CHECK_THAT(said(2), ContainsSubstring("two layers of kind 'module.scale' have other costs"));
}

}  // namespace
}  // namespace troupe::models
