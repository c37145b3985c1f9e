#include "runtime/data/reading/image_patches.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <cstring>

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

bool same_bits(const ImagePatches& a, const ImagePatches& b) {
  return a.grid_height == b.grid_height && a.grid_width == b.grid_width &&
         a.patches.size() == b.patches.size() &&
         std::memcmp(a.patches.data(), b.patches.data(), a.patches.size() * sizeof(float)) == 0;
}

TEST_CASE("patches are made again of their pixels, to the bit", "[data]") {
  // Of odd sizes, grey, with a palette, with transparency: each is RGB when it is cut.
  const auto file = GENERATE(as<std::string>{}, "rgb.jpg", "grey.jpg", "cmyk.jpg", "grey16.png",
                             "grey_alpha.png", "palette_alpha.png", "rgba.png");
  const auto vision =
      GENERATE(VisionInput{}, VisionInput{7, 4, 1}, VisionInput{16, 1, 3}, VisionInput{1, 2, 2, 5});
  CAPTURE(file, vision.patch_size);
  DataOptions options;
  options.max_pixels = 25088;
  const auto image = read_image(golden_path(file), options.decoded_pixels_max).value();
  const ImagePatches cut = prepare_image(image, options, vision).value();
  const std::int32_t frames = vision.temporal_patch_size;
  const auto pixels = patch_pixels(cut, frames);
  REQUIRE(pixels.has_value());
  CHECK(pixels->size() * static_cast<std::size_t>(frames) == cut.patches.size());
  CHECK(same_bits(patches_of(*pixels, cut.grid_height, cut.grid_width, frames), cut));
}

TEST_CASE("pixels stand patch by patch, each byte of each channel once", "[data]") {
  // As above: 0 1 4 5 | 2 3 6 7 is the order of rows.
  VisionInput vision{.patch_size = 1, .merge_size = 2, .temporal_patch_size = 2};
  RgbImage image{4, 2, {}};
  for (std::uint8_t i = 0; i < 8; ++i) image.rgb.insert(image.rgb.end(), {i, 100, 200});
  const auto pixels = patch_pixels(cut_patches(image, vision), 2);
  REQUIRE(pixels.has_value());
  std::vector<std::uint8_t> expected;
  for (const std::uint8_t red : {0, 1, 4, 5, 2, 3, 6, 7})
    expected.insert(expected.end(), {red, 100, 200});
  CHECK(*pixels == expected);
  RgbImage all{16, 16, {}};
  for (int i = 0; i < 256; ++i) all.rgb.insert(all.rgb.end(), 3, static_cast<std::uint8_t>(i));
  const ImagePatches cut = cut_patches(all, vision);
  REQUIRE(patch_pixels(cut, 2).has_value());
  CHECK(same_bits(patches_of(*patch_pixels(cut, 2), 16, 16, 2), cut));
}

TEST_CASE("a square of known pixels is cut from the middle, or is all of a picture", "[data]") {
  // 4 x 2 pixels of red, whose shorter side is the square's: columns 1 and 2 are kept.
  RgbImage image{4, 2, {}};
  for (const std::uint8_t red : {0, 80, 160, 240, 0, 80, 160, 240})
    image.rgb.insert(image.rgb.end(), {red, 0, 0});
  VisionInput vision{
      .patch_size = 1, .merge_size = 1, .temporal_patch_size = 1, .scale = {{0, 0, 0}, {1, 1, 1}}};
  const auto reds = [&] {
    const ImagePatches cut = prepare_image(image, {}, vision).value();
    CHECK((cut.grid_height == 2 && cut.grid_width == 2));
    std::vector<int> found;
    for (std::size_t row = 0; row < 4; ++row)
      found.push_back(static_cast<int>(std::lround(cut.patches[3 * row] * 255)));
    return found;
  };
  vision.resize = {ResizeMode::crop, 2};
  CHECK(reds() == std::vector{80, 160, 80, 160});
  vision.resize = {ResizeMode::stretch, 2, PixelFilter::bilinear};
  // Weights 3/4, 3/4, 1/4 over 7/4: (0 x 3 + 80 x 3 + 160) / 7 = 57.1; 240 - 57.1 = 182.9.
  CHECK(reds() == std::vector{57, 183, 57, 183});
}

TEST_CASE("pixels beyond the last whole patch are left out", "[data]") {
  // 3 x 3 pixels under patches of 2 x 2: one patch.
  RgbImage image{3, 3, {}};
  for (std::uint8_t i = 0; i < 9; ++i) image.rgb.insert(image.rgb.end(), 3, i);
  const VisionInput vision{
      .patch_size = 2, .merge_size = 1, .temporal_patch_size = 1, .scale = {{0, 0, 0}, {1, 1, 1}}};
  const ImagePatches cut = cut_patches(image, vision);
  REQUIRE((cut.grid_height == 1 && cut.grid_width == 1 && cut.patches.size() == 12));
  const auto pixels = patch_pixels(cut, 1, vision.scale);
  REQUIRE(pixels.has_value());
  CHECK(std::vector<std::uint8_t>(pixels->begin(), pixels->begin() + 4) ==
        std::vector<std::uint8_t>{0, 1, 3, 4});
}

TEST_CASE("pixels are normalised as their encoder says, and found again by that", "[data]") {
  // Of a row of channels: -1 for no light, 1 for all of it, and byte 51 a fifth of the way.
  const VisionInput vision{.patch_size = 1,
                           .merge_size = 1,
                           .temporal_patch_size = 1,
                           .scale = {{0.5, 0.5, 0.25}, {0.5, 0.5, 0.125}}};
  const ImagePatches cut = cut_patches({1, 1, {0, 255, 51}}, vision);
  REQUIRE(cut.patches.size() == 3);
  CHECK((cut.patches[0] == -1 && cut.patches[1] == 1));
  CHECK(cut.patches[2] == Catch::Approx((0.2 - 0.25) / 0.125));
  const auto pixels = patch_pixels(cut, 1, vision.scale);
  REQUIRE(pixels.has_value());
  CHECK(*pixels == std::vector<std::uint8_t>{0, 255, 51});
  CHECK(same_bits(patches_of(*pixels, 1, 1, 1, vision.scale), cut));
  CHECK_FALSE(patch_pixels(cut, 1).has_value());  // By CLIP's they are of no picture.
  RgbImage all{16, 16, {}};
  for (int i = 0; i < 256; ++i) all.rgb.insert(all.rgb.end(), 3, static_cast<std::uint8_t>(i));
  // The farthest that families may go.
  const PixelScale scale{{1000, -1000, 1000}, {1e-6, 1e6, 1}};
  const ImagePatches far = cut_patches(all, {.patch_size = 16, .merge_size = 1, .scale = scale});
  REQUIRE(patch_pixels(far, 2, scale).has_value());
  CHECK(same_bits(patches_of(*patch_pixels(far, 2, scale), 1, 1, 2, scale), far));
}

TEST_CASE("values that are of no picture have no pixels", "[data][errors]") {
  RgbImage image{28, 28, std::vector<std::uint8_t>(28 * 28 * 3, 77)};
  const ImagePatches cut = cut_patches(image, {});
  REQUIRE(patch_pixels(cut, 2).has_value());
  auto other = cut;
  other.patches.pop_back();
  CHECK_FALSE(patch_pixels(other, 2).has_value());
  // The frames of the first channel of the first patch begin at 0 and at 196.
  for (const std::size_t place : {std::size_t{0}, std::size_t{196}}) {
    other = cut;
    other.patches[place] = other.patches[392];  // Another channel's value, in one frame of two.
    CHECK_FALSE(patch_pixels(other, 2).has_value());
  }
  for (const float value : {std::nextafter(cut.patches[0], 1.0F), 9.0F, -9.0F, NAN}) {
    other = cut;
    other.patches[0] = other.patches[196] = value;
    CHECK_FALSE(patch_pixels(other, 2).has_value());
  }
  CHECK_FALSE(patch_pixels({}, 2).has_value());
}

TEST_CASE("prepare_image passes on why a picture cannot be resized", "[data][errors]") {
  const RgbImage line{201, 1, std::vector<std::uint8_t>(603)};
  CHECK(prepare_image(line, {}, {}).error().code == Errc::bad_data);
}

}  // namespace
}  // namespace troupe::data
