// A family whose pictures all come in one square, as CLIP's and SigLIP's: job files, profiles and
// made samples go by that.

#include "tests/torch_catch.hpp"

#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/contract/made_samples.hpp"
#include "engine/profiling/kind_bench.hpp"
#include "engine/profiling/profile_layers.hpp"
#include "engine/profiling/profile_run.hpp"
#include "models/built_on.hpp"
#include "models/family/registry.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/runtime/job/job_files.hpp"

namespace troupe::engine {
namespace {

using Catch::Matchers::ContainsSubstring;

struct SquareConfig {
  models::VisionConfig inner = {};
  std::int32_t image_size = 112;  ///< 0: by area, as Qwen2-VL.
  bool is_cropped = false;

  friend bool operator==(const SquareConfig&, const SquareConfig&) = default;
};

/// The most patches along a side of a picture that layers of the family have run on.
std::int64_t& longest_side_seen() {
  static std::int64_t patches = 0;
  return patches;
}

/// A layer that notes grids.
class NotedGrids final : public models::Layer {
 public:
  explicit NotedGrids(std::unique_ptr<models::Layer> layer) : layer_(std::move(layer)) {}

  at::Tensor forward(const at::Tensor& rows, const models::PackedBatch& batch) override {
    for (const auto& grid : batch.grids)
      longest_side_seen() = std::max({longest_side_seen(), grid.height, grid.width});
    return layer_->forward(rows, batch);
  }
  std::vector<models::Parameter>& parameters() override { return layer_->parameters(); }

 private:
  const std::unique_ptr<models::Layer> layer_;
};

/// Adds the family `squares`, Qwen2-VL's with pictures in squares, once.
void register_squares() {
  if (models::find_family("squares") != nullptr) return;
  models::Family family = models::built_on<SquareConfig>(
      models::qwen2_vl(), "squares", &SquareConfig::inner,
      +[](models::ConfigFields& v, SquareConfig& x) {
        v.integer("image_size", x.image_size, 0, 8192);
        v.flag("is_cropped", x.is_cropped);
      });
  family.media = [of = family.media](const FamilyConfig& config) {
    MediaInput input = of(config);
    const auto& own = config.as<SquareConfig>();
    if (own.image_size > 0)
      input.vision.resize = {own.is_cropped ? ResizeMode::crop : ResizeMode::stretch,
                             own.image_size};
    return input;
  };
  family.make = [of = family.make](const ModuleConfig& module, int index,
                                   std::vector<models::Parameter> parameters) {
    return std::make_unique<NotedGrids>(of(module, index, std::move(parameters)));
  };
  REQUIRE(models::register_family(std::move(family)).ok());
}

/// The tiny job with such an encoder.
JobSetup setup_with(std::int32_t image_size, bool is_cropped = false) {
  register_squares();
  job::Job job = tiny_job();
  auto& vision = job.modules[0];
  vision.family = "squares";
  vision.config = SquareConfig{vision.config.as<models::VisionConfig>(), image_size, is_cropped};
  return prepare(job).value();
}

TEST_CASE("the square of pictures makes another profile, and how they come to it does not",
          "[engine]") {
  const auto key = profile_key(setup_with(112));
  std::set<std::string> models{key.model};
  for (const std::int32_t other : {0, 56, 140}) {
    CAPTURE(other);
    CHECK(models.insert(profile_key(setup_with(other)).model).second);
  }
  CHECK((profile_key(setup_with(112, /*is_cropped=*/true)) == key));
  CHECK((profile_key(setup_with(113)) == key));  // As many patches: a pixel is left over.
}

TEST_CASE("layers are measured on pictures that lie in their encoder's square", "[engine]") {
  // Patches are merged 2 x 2, so that a square has two per 28 pixels. By area 8 x 8 are packed.
  const auto [image_size, side] = GENERATE(
      table<std::int32_t, std::int64_t>({{0, 8}, {28, 2}, {56, 4}, {84, 4}, {112, 8}, {384, 8}}));
  CAPTURE(image_size);
  const JobSetup setup = setup_with(image_size);
  QuietWatch watch(machine_clocks(), 100);
  for (const LayerKind& kind : layer_kinds(setup)) {
    if (!kind.name.starts_with("vision.")) continue;
    CAPTURE(kind.name);
    auto bench = KindBench::create(setup, kind, watch).value();
    for (const TokenCount tokens : {16, 128}) {
      longest_side_seen() = 0;
      bench.begin(tokens);
      CHECK(longest_side_seen() == std::min<std::int64_t>(side, tokens == 16 ? 4 : 8));
    }
  }
}

TEST_CASE("layers are measured on whole merged patches, whatever their encoder merges",
          "[engine]") {
  // Of 3 x 3: 9, 18 and 36 patches in the place of 16, 32 and 64, at most 6 x 6. Squares of 126
  // pixels have 3 x 3 of them, of which the measured ones have 2 x 2, and those of 42 one.
  const auto [merge, image_size, least, side] =
      GENERATE(table<std::int32_t, std::int32_t, TokenCount, std::int64_t>({{1, 0, 16, 8},
                                                                            {2, 0, 16, 8},
                                                                            {3, 0, 9, 6},
                                                                            {3, 126, 9, 6},
                                                                            {3, 42, 9, 3},
                                                                            {4, 0, 16, 8},
                                                                            {5, 0, 25, 10}}));
  CAPTURE(merge, image_size);
  register_squares();
  job::Job job = tiny_job();
  auto& vision = job.modules[0];
  auto inner = vision.config.as<models::VisionConfig>();
  inner.spatial_merge_size = merge;
  vision.family = "squares";
  vision.config = SquareConfig{inner, image_size, false};
  const JobSetup setup = prepare(job).value();
  LayerProfileOptions options;
  options.tokens_max = 64;
  QuietWatch watch(machine_clocks(), 100);
  longest_side_seen() = 0;
  const auto profiles = profile_layers(setup, options, watch);
  INFO((profiles.ok() ? "" : to_string(profiles.error())));
  REQUIRE(profiles.ok());
  CHECK(longest_side_seen() == side);
  for (const auto& profile : profiles.value()) {
    CAPTURE(profile.kind);
    REQUIRE(profile.points.size() == 3);
    const TokenCount first = profile.kind.starts_with("vision.") ? least : 16;
    for (std::size_t size = 0; size < 3; ++size)
      CHECK(profile.points[size].tokens == first << size);
  }
}

TEST_CASE("pictures are made in the square of their encoder", "[engine]") {
  // Three merged patches of 28, and 6 pixels that have none.
  const JobSetup setup = setup_with(90);
  int pictures = 0;
  for (const auto& sample : made_samples(setup.data, 5))
    for (const auto& picture : sample.images.at(0)) {
      CHECK((picture.grid_height == 6 && picture.grid_width == 6));
      CHECK(picture.patches.size() == std::size_t{36 * 3 * 2 * 14 * 14});
      ++pictures;
    }
  CHECK(pictures == 5);
}

/// What a job says in vain.
std::vector<Error> warnings(const std::string& job, const std::vector<std::string>& overrides) {
  const JobFolder folder;
  const auto reading = job::read_job(folder.write("job.toml", job), overrides);
  INFO(shown(reading));
  REQUIRE(reading.ok());
  return reading.loaded.warnings;
}

TEST_CASE("pixels are no budget where all pictures come in squares", "[engine]") {
  register_squares();
  const std::string squares = "modules.vision.family=squares";
  CHECK(warnings(kSmallJob, {squares}).empty());
  // 100 pixels are less than a patch has: of pictures in squares that is no fault.
  const std::vector<std::string> limits{"data.max_pixels=100", "data.min_pixels=1"};
  const auto found = warnings(kSmallJob, {squares, limits[0], limits[1]});
  REQUIRE(found.size() == limits.size());
  for (std::size_t i = 0; i < limits.size(); ++i) {
    const std::string key = limits[i].substr(0, limits[i].find('='));
    CHECK_THAT(found[i].message,
               ContainsSubstring(key + " has no effect: every encoder of images"));
    CHECK_THAT(found[i].fix, ContainsSubstring("is the encoder's to say"));
    CHECK(found[i].where == "command line");
  }
  // One beside it that takes them by area is reason enough.
  const std::string other =
      "[modules.eyes]\nkind = \"encoder\"\nfamily = \"qwen2-vl\"\n"
      "[modules.eyes_projector]\nkind = \"projector\"\n";
  CHECK(warnings(kSmallJob + other, {squares, "data.max_pixels=50176"}).empty());
}

}  // namespace
}  // namespace troupe::engine
