#include "runtime/data/reading/image_patches.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include "golden.hpp"
#include "runtime/data/reading/read_image.hpp"

namespace troupe::data {
namespace {

TEST_CASE("cut_patches puts the four patches of a merged one together", "[data]") {
  // Patches of one pixel, 2 x 2 merged, one frame, 4 x 2 pixels whose red is their number:
  //   0 1 | 2 3      rows: 0 1 4 5 | 2 3 6 7
  //   4 5 | 6 7
  VisionInput vision{.patch_size = 1, .merge_size = 2, .temporal_patch_size = 1};
  RgbImage image{4, 2, {}};
  for (std::uint8_t i = 0; i < 8; ++i) image.rgb.insert(image.rgb.end(), {i, 0, 0});
  const ImagePatches cut = cut_patches(image, vision);
  REQUIRE(cut.patches.size() == 8 * 3);
  CHECK(cut.grid_height == 2);
  CHECK(cut.grid_width == 4);
  const int order[] = {0, 1, 4, 5, 2, 3, 6, 7};
  for (std::size_t row = 0; row < 8; ++row)
    CHECK(cut.patches[3 * row] ==
          Catch::Approx((order[row] / 255.0 - 0.48145466) / 0.26862954).epsilon(1e-6));
}

TEST_CASE("cut_patches agrees with Qwen2-VL's transposition in numpy", "[data]") {
  const auto& entry = golden_cases()["patches"];
  const RgbImage image{entry["width"], entry["height"], golden_pixels("patches_small.rgb")};
  const ImagePatches cut = cut_patches(image, {entry["patch"], entry["merge"], entry["frames"]});
  CHECK(largest_difference(cut.patches, golden_floats("patches_small.f32")) < 1e-6);
}

TEST_CASE("prepare_image agrees with Pillow and numpy from file to patches", "[data]") {
  const auto& entry = golden_cases()["prepared"];
  DataOptions options;
  options.max_pixels = entry["max_pixels"];
  auto image = read_image(golden_path(entry["file"]), options.decoded_pixels_max);
  REQUIRE(image.ok());
  auto cut = prepare_image(image.value(), options, options.vision[0].input);
  REQUIRE(cut.ok());
  CHECK(cut.value().grid_height == entry["grid"][0].get<int>());
  CHECK(cut.value().grid_width == entry["grid"][1].get<int>());
  CHECK(cut.value().patches.size() == static_cast<std::size_t>(cut.value().grid_height) *
                                          static_cast<std::size_t>(cut.value().grid_width) * 1176);
  CHECK(largest_difference(thinned(cut.value().patches, entry["step"]),
                           golden_floats("prepared.f32")) < 1e-6);
}

TEST_CASE("prepare_image passes on why a picture cannot be resized", "[data][errors]") {
  const RgbImage line{201, 1, std::vector<std::uint8_t>(603)};
  CHECK(prepare_image(line, {}, {}).error().code == Errc::bad_data);
}

}  // namespace
}  // namespace troupe::data
