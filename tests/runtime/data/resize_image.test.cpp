#include "runtime/data/reading/resize_image.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <random>

#include "golden.hpp"

namespace troupe::data {
namespace {

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

TEST_CASE("smart_resize refuses sides of more than 200 to 1", "[data][errors]") {
  CHECK(smart_resize({5600, 28}, 28, 3136, 1003520).ok());
  auto size = smart_resize({5601, 28}, 28, 3136, 1003520);
  REQUIRE_FALSE(size.ok());
  CHECK(size.error().code == Errc::bad_data);
  CHECK_THAT(size.error().message, Catch::Matchers::ContainsSubstring("5601 x 28"));
}

}  // namespace
}  // namespace troupe::data
