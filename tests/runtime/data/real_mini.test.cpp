// Every picture and clip of the real data set beside the repository; skipped where it is absent.

#include <zlib.h>

#include <catch2/catch_test_macros.hpp>
#include <set>

#include "golden.hpp"
#include "runtime/data/reading/log_mel.hpp"
#include "runtime/data/reading/read_audio.hpp"
#include "runtime/data/reading/read_image.hpp"
#include "runtime/data/reading/resize_image.hpp"
#include "runtime/data/samples/decode_sample.hpp"

namespace troupe::data {
namespace {

bool is_here() { return std::filesystem::exists(real_mini() / "samples.json"); }

std::uint32_t digest(const RgbImage& image) {
  return static_cast<std::uint32_t>(
      crc32(0, image.rgb.data(), static_cast<uInt>(image.rgb.size())));
}

TEST_CASE("every real picture decodes and resizes to Pillow's bytes", "[data][real]") {
  if (!is_here()) SKIP("no " + real_mini().string());
  const auto golden = nlohmann::json::parse(golden_bytes("real-mini.json"));
  for (const auto& entry : golden["images"]) {
    const std::string name = entry["file"];
    CAPTURE(name);
    auto image = read_image(real_mini() / "images" / name, 1 << 26);
    REQUIRE(image.ok());
    CHECK(image.value().width == entry["size"][0].get<int>());
    CHECK(image.value().height == entry["size"][1].get<int>());
    CHECK(digest(image.value()) == entry["decoded"].get<std::uint32_t>());
    for (const auto& [max_pixels, expected] :
         {std::pair{1003520, entry["resized"][0]}, std::pair{25088, entry["resized"][1]}}) {
      auto size = smart_resize({image.value().width, image.value().height}, 28, 3136, max_pixels);
      REQUIRE(size.ok());
      CHECK(size.value() == ImageSize{expected[0].get<int>(), expected[1].get<int>()});
      CHECK(digest(resize_image(image.value(), uncropped(size.value()), PixelFilter::bicubic)) ==
            expected[2].get<std::uint32_t>());
    }
  }
}

TEST_CASE("real clips have the reference's features", "[data][real]") {
  if (!is_here()) SKIP("no " + real_mini().string());
  const auto golden = nlohmann::json::parse(golden_bytes("real-mini.json"));
  for (const auto& entry : golden["audio"]) {
    CAPTURE(entry[0].get<std::string>());
    auto clip = read_audio(real_mini() / "audio" / entry[0].get<std::string>(), 3600);
    REQUIRE(clip.ok());
    const MelFrames out = log_mel(clip.value(), 80);
    REQUIRE(out.frames == entry[1].get<int>());
    double sum = 0;
    for (const float value : out.mel) sum += value;
    CHECK(std::abs(sum / static_cast<double>(out.mel.size()) - entry[2].get<double>()) < 1e-4);
    for (std::size_t i = 0; i < 7; ++i)
      CHECK(std::abs(out.mel[i * (out.mel.size() - 1) / 6] - entry[3][i].get<double>()) < 1e-4);
  }
}

TEST_CASE("real samples are all good and no media file is left unused", "[data][real]") {
  if (!is_here()) SKIP("no " + real_mini().string());
  DataOptions options;
  options.sources = {{real_mini() / "samples.json", real_mini(), "llava"}};
  options.max_pixels = 25088;
  auto dataset = Dataset::open(options);
  REQUIRE(dataset.ok());
  CHECK(dataset.value().size() == 1200);
  std::set<std::string> pictures;
  for (const auto& record : dataset.value().records()) {
    CHECK(record.defect.empty());
    // Decoding every sample would decode each picture several times; one per new picture will do.
    bool is_new = false;
    for (const auto& name : record.images) is_new |= pictures.insert(name).second;
    if (!is_new && !record.audio.empty()) continue;
    auto outcome = decode_sample(
        dataset.value(), record, options,
        {.images = is_new ? kEveryEncoder : 0, .audio = is_new ? kEveryEncoder : 0, .text = true});
    if (const auto* bad = std::get_if<BadSample>(&outcome)) FAIL_CHECK(to_string(*bad));
  }
  CHECK(pictures.size() == 150);
}

}  // namespace
}  // namespace troupe::data
