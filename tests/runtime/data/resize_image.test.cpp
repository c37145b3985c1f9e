#include "runtime/data/reading/resize_image.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <random>

#include "golden.hpp"

namespace troupe::data {
namespace {

/// All of a picture as Qwen2-VL has it resized.
RgbImage resize_bicubic(const RgbImage& image, ImageSize size) {
  return resize_image(image, uncropped(size), PixelFilter::bicubic);
}

TEST_CASE("resize_bicubic gives Pillow's bytes, enlarging and shrinking", "[data]") {
  for (const auto& entry : golden_cases()["resize"]) {
    const std::string name = entry["file"];
    CAPTURE(name);
    const RgbImage source{entry["from"][0], entry["from"][1], golden_pixels("resize.rgb")};
    const RgbImage out = resize_bicubic(source, {entry["width"], entry["height"]});
    CHECK(out.width == entry["width"].get<int>());
    CHECK(out.height == entry["height"].get<int>());
    CHECK(out.rgb == golden_pixels(name));
  }
}

TEST_CASE("resize_bicubic keeps a picture of one colour", "[data][property]") {
  const int seed = GENERATE(range(0, 20));
  std::mt19937 random(static_cast<unsigned>(seed));
  const auto side = [&] { return static_cast<std::int32_t>(1 + random() % 60); };
  RgbImage image{side(), side(), {}};
  for (int i = 0; i < image.width * image.height; ++i)
    image.rgb.insert(image.rgb.end(), {static_cast<std::uint8_t>(seed), 255, 0});
  const RgbImage out = resize_bicubic(image, {side(), side()});
  for (std::size_t i = 0; i < out.rgb.size(); i += 3) {
    CHECK(out.rgb[i] == seed);
    CHECK(out.rgb[i + 1] == 255);
    CHECK(out.rgb[i + 2] == 0);
  }
}

TEST_CASE("smart_resize agrees with Qwen2-VL's arithmetic", "[data]") {
  for (const auto& entry : golden_cases()["smart_resize"]) {
    CAPTURE(entry.dump());
    auto size = smart_resize({entry[1], entry[0]}, 28, entry[2], entry[3]);
    REQUIRE(size.ok() != entry[4].is_null());
    if (size.ok()) CHECK(size.value() == ImageSize{entry[4][1].get<int>(), entry[4][0].get<int>()});
  }
}

TEST_CASE("smart_resize rounds halves to even", "[data]") {
  // 350 / 28 = 12.5 -> 12 -> 336; 378 / 28 = 13.5 -> 14 -> 392.
  CHECK(smart_resize({350, 378}, 28, 1, 1 << 30).value() == ImageSize{336, 392});
}

RgbImage greys(std::int32_t width, std::int32_t height, const std::vector<std::uint8_t>& values) {
  RgbImage image{width, height, {}};
  for (const std::uint8_t grey : values) image.rgb.insert(image.rgb.end(), 3, grey);
  return image;
}

TEST_CASE("resize_image weighs two neighbours by their distance with the bilinear filter",
          "[data]") {
  // From 2 to 4: centres lie at 0.25, 0.75, 1.25 and 1.75 of pixels whose own are 0.5 and 1.5.
  const auto wide = resize_image(greys(2, 1, {0, 100}), uncropped({4, 1}), PixelFilter::bilinear);
  CHECK((wide == greys(4, 1, {0, 25, 75, 100})));
  // From 2 to 1: half of each, 15.5, and halves go up. Of columns and of rows.
  for (const auto& from : {greys(2, 1, {10, 21}), greys(1, 2, {10, 21})})
    CHECK((resize_image(from, uncropped({1, 1}), PixelFilter::bilinear) == greys(1, 1, {16})));
}

TEST_CASE("resize_image gives the middle of what it resizes with the bits of a crop",
          "[data][property]") {
  const RgbImage source{41, 29, golden_pixels("resize.rgb")};
  const auto filter = GENERATE(PixelFilter::bicubic, PixelFilter::bilinear);
  // Shrunk, enlarged, down first, and of its own size.
  const auto size =
      GENERATE(ImageSize{20, 14}, ImageSize{70, 60}, ImageSize{39, 11}, ImageSize{41, 29});
  const ImageArea kept{3, 2, {9, 7}};
  const RgbImage whole = resize_image(source, uncropped(size), filter);
  const RgbImage part = resize_image(source, {size, kept}, filter);
  RgbImage expected{kept.size.width, kept.size.height, {}};
  for (std::int32_t y = 0; y < kept.size.height; ++y) {
    const auto from = whole.rgb.begin() + 3 * ((y + kept.top) * size.width + kept.left);
    expected.rgb.insert(expected.rgb.end(), from, from + 3 * kept.size.width);
  }
  CHECK((part == expected));
}

TEST_CASE("squares are those of Pillow, resized and cropped", "[data]") {
  for (const auto& entry : golden_cases()["squares"]) {
    const std::string name = entry["file"];
    CAPTURE(name);
    const RgbImage source{entry["from"][0], entry["from"][1], golden_pixels("resize.rgb")};
    VisionInput vision;
    vision.resize.mode = entry["mode"] == "crop" ? ResizeMode::crop : ResizeMode::stretch;
    vision.resize.side = entry["side"];
    const auto filter =
        entry["filter"] == "bilinear" ? PixelFilter::bilinear : PixelFilter::bicubic;
    const auto fit = fit_image({source.width, source.height}, vision, 1, 1).value();
    const RgbImage out = resize_image(source, fit, filter);
    CHECK((out.width == vision.resize.side && out.height == vision.resize.side));
    CHECK(out.rgb == golden_pixels(name));
  }
}

TEST_CASE("fit_image brings every picture to the square that its encoder says", "[data]") {
  VisionInput vision{.patch_size = 14, .merge_size = 1};
  const auto fit = [&](ImageSize size) { return fit_image(size, vision, 3136, 6272).value(); };
  vision.resize = {ResizeMode::stretch, 384};
  CHECK((fit({1000, 50}) == uncropped({384, 384})));
  CHECK(vision.patches_along(384) == 27);       // SigLIP: 378 pixels; the last 6 are of no patch.
  CHECK(VisionInput{}.patches_along(55) == 2);  // One of 28; half a merged patch is none.
  vision.resize = {ResizeMode::crop, 336};
  // 336 x 640 / 427 = 503.6 -> 503; 167 too many, of which 83 stand before.
  CHECK((fit({640, 427}) == ImageFit{{503, 336}, {83, 0, {336, 336}}}));
  CHECK((fit({427, 640}) == ImageFit{{336, 503}, {0, 83, {336, 336}}}));
  CHECK((fit({10, 10}) == ImageFit{{336, 336}, {0, 0, {336, 336}}}));
  CHECK_FALSE(fit_image({5601, 28}, vision, 3136, 6272).ok());
  vision.resize = {};
  CHECK((fit({350, 378}).size == smart_resize({350, 378}, 14, 3136, 6272).value()));
}

TEST_CASE("smart_resize refuses sides of more than 200 to 1", "[data][errors]") {
  CHECK(smart_resize({5600, 28}, 28, 3136, 1003520).ok());
  auto size = smart_resize({5601, 28}, 28, 3136, 1003520);
  REQUIRE_FALSE(size.ok());
  CHECK(size.error().code == Errc::bad_data);
  CHECK_THAT(size.error().message, Catch::Matchers::ContainsSubstring("5601 x 28"));
}

}  // namespace
}  // namespace troupe::data
