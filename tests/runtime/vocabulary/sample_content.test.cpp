#include "runtime/vocabulary/sample_content.hpp"

#include <catch2/catch_test_macros.hpp>

namespace troupe {
namespace {

constexpr ModuleId kVision{0}, kAudio{1};

/// Two pictures of 24 and 8 patches, and a window of 100 frames, for these sizes of rows.
SampleShape two_pictures_and_a_window(std::int32_t columns, std::int32_t equal_frames,
                                      std::int32_t mel_bins) {
  SampleShape shape;
  shape.media = {{kVision, {{24, 24, 6, 4, 6, 0}, {8, 8, 2, 2, 4, 1}}, columns, equal_frames},
                 {kAudio, {{100, 50, 50, 0, 0, 0}}, mel_bins}};
  return shape;
}

TEST_CASE("media move in the form that has fewest bytes", "[vocabulary]") {
  // Qwen2-VL's rows, 3 x 2 x 14 x 14 values: 4704 bytes, of which one frame's pixels are an eighth.
  const auto usual = two_pictures_and_a_window(1176, 2, 128);
  CHECK(row_bytes(usual.media[0], MediaForm::values) == 4704);
  CHECK(row_bytes(usual.media[0], MediaForm::pixels) == 588);
  CHECK((media_form(usual.media[0]) == MediaForm::pixels));
  CHECK(media_bytes(usual, kVision) == Bytes{32 * 588});
  // Features of sounds are no pixels: 100 frames of 128 bins.
  CHECK((media_form(usual.media[1]) == MediaForm::values));
  CHECK(media_bytes(usual, kAudio) == Bytes{100 * 128 * 4});
  // One frame: a quarter.
  const auto still = two_pictures_and_a_window(588, 1, 80);
  CHECK(media_bytes(still, kVision) == Bytes{32 * 588});
  CHECK(row_bytes(still.media[0], MediaForm::values) == 4 * 588);
}

TEST_CASE("rows of which nobody says that they are of pixels move as they are", "[vocabulary]") {
  CHECK(media_bytes(two_pictures_and_a_window(1176, 0, 80), kVision) == Bytes{32 * 4704});
  // No three channels of so many frames have as many columns.
  CHECK(media_bytes(two_pictures_and_a_window(1176, 5, 80), kVision) == Bytes{32 * 4704});
  CHECK(media_bytes(two_pictures_and_a_window(8, 2, 80), kVision) == Bytes{32 * 32});
  CHECK(media_bytes(two_pictures_and_a_window(0, 2, 0), kVision) == Bytes{0});
}

TEST_CASE("a delivery has the bytes of its units, a piece those of its items", "[vocabulary]") {
  std::vector<SampleShape> samples{two_pictures_and_a_window(1176, 2, 80), {}};
  samples[0].llm_tokens = 6 + 2 + 50 + 20;
  samples[0].markers = {{kVision, 1}, {kAudio, 2}, {kVision, 3}};
  samples[1].llm_tokens = 7;
  const std::vector<SamplePiece> pieces{{0, kVision, 1, 1}};
  const SampleUnits units(samples, pieces);
  const auto bytes = [&](ModuleId encoder, std::vector<std::int32_t> of) {
    return content_bytes({DeviceId{0}, {}, encoder, std::move(of), {}}, units);
  };
  CHECK(bytes(kVision, {0}) == Bytes{32 * 588});
  CHECK(bytes(kVision, {2}) == Bytes{8 * 588});
  CHECK(bytes(kAudio, {0}) == Bytes{100 * 80 * 4});
  // Twenty tokens, a placeholder for each of three media, and seven.
  CHECK(bytes({}, {0, 1}) == Bytes{(23 + 7) * 4});
}

}  // namespace
}  // namespace troupe
