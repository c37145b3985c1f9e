#include "runtime/data/reading/log_mel.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "golden.hpp"
#include "runtime/data/reading/read_audio.hpp"

namespace troupe::data {
namespace {

/// The features are compared with a float64 reference; 1e-4 is 0.004 dB.
constexpr double kTolerance = 1e-4;

TEST_CASE("log_mel agrees with the float64 reference, from file to features", "[data]") {
  for (const auto& entry : golden_cases()["audio"]) {
    const std::string name = entry["file"];
    CAPTURE(name);
    auto clip = read_audio(golden_path(name), 3600);
    REQUIRE(clip.ok());
    CHECK(std::ssize(clip.value()) == entry["samples"].get<std::ptrdiff_t>());
    const MelFrames out = log_mel(clip.value(), entry["bins"]);
    CHECK(out.frames == entry["frames"].get<int>());
    CHECK(largest_difference(out.mel, golden_floats(name + ".f32")) < kTolerance);
  }
}

TEST_CASE("log_mel of silence is flat at the floor", "[data]") {
  // log10(1e-10) = -10 everywhere, so the floor is the maximum itself: (-10 + 4) / 4 = -1.5.
  const MelFrames out = log_mel(std::vector<float>(480), 80);
  CHECK(out.frames == 3);
  CHECK(std::all_of(out.mel.begin(), out.mel.end(), [](float x) { return x == -1.5f; }));
}

TEST_CASE("log_mel_windows pads to 30 s where asked", "[data]") {
  const auto& entry = golden_cases()["padded"];
  auto clip = read_audio(golden_path(entry["file"]), 3600);
  REQUIRE(clip.ok());
  auto windows = log_mel_windows(clip.value(), 80, true);
  REQUIRE(windows.ok());
  REQUIRE(windows.value().size() == 1);
  CHECK(windows.value()[0].frames == 3000);
  CHECK(largest_difference(thinned(windows.value()[0].mel, entry["step"]),
                           golden_floats("padded.f32")) < kTolerance);
}

TEST_CASE("log_mel_windows cuts at 30 s and leaves out a rest without a frame", "[data]") {
  const auto frames = [](std::size_t samples) {
    std::vector<std::int32_t> counts;
    const auto windows = log_mel_windows(std::vector<float>(samples, 0.1f), 2, false);
    REQUIRE(windows.ok());
    for (const auto& window : windows.value()) counts.push_back(window.frames);
    return counts;
  };
  using Frames = std::vector<std::int32_t>;
  CHECK(frames(160) == Frames{1});
  CHECK(frames(319) == Frames{1});
  CHECK(frames(320) == Frames{2});
  CHECK(frames(480000) == Frames{3000});
  CHECK(frames(480159) == Frames{3000});
  CHECK(frames(480160) == Frames{3000, 1});
  CHECK(frames(960000) == Frames{3000, 3000});
  CHECK(frames(960500) == Frames{3000, 3000, 3});
}

TEST_CASE("log_mel_windows gives each window the features of its samples alone", "[data]") {
  std::vector<float> clip(480000 + 8000);
  for (std::size_t i = 0; i < clip.size(); ++i)
    clip[i] = std::sin(static_cast<float>(i % 1000) * 0.1f) * (i < 480000 ? 1.0f : 0.01f);
  auto windows = log_mel_windows(clip, 80, false);
  REQUIRE(windows.ok());
  REQUIRE(windows.value().size() == 2);
  CHECK(windows.value()[0].mel == log_mel({clip.data(), 480000}, 80).mel);
  CHECK(windows.value()[1].mel == log_mel({clip.data() + 480000, 8000}, 80).mel);
}

TEST_CASE("log_mel_windows refuses a clip shorter than one frame", "[data][errors]") {
  auto windows = log_mel_windows(std::vector<float>(159), 80, false);
  REQUIRE_FALSE(windows.ok());
  CHECK(windows.error().code == Errc::bad_data);
  CHECK(log_mel_windows(std::vector<float>(159), 80, true).error().code == Errc::bad_data);
}

TEST_CASE("mel_filters are triangles of unit area on Slaney's scale", "[data]") {
  const auto filters = mel_filters(80);
  REQUIRE(filters.size() == 80 * 201);
  // 1 kHz is mel 15 and 8 kHz mel 15 + 27 ln 8 / ln 6.4 = 45.2456; steps are 45.2456 / 81 = 0.55859
  // mel. Bin 0 thus rises to 0.55859 * 66.667 = 37.239 Hz and falls to 74.479 Hz; of the
  // frequencies 0, 40, 80 only 40 Hz is inside: (74.479 - 40) / 37.239 * 2 / 74.479 = 0.024863.
  CHECK(filters[0] == 0);
  CHECK(filters[1] == Catch::Approx(0.024863).margin(1e-6));
  CHECK(filters[2] == 0);
  // Area in Hz of a high bin, whose triangle many frequencies hit: about one.
  double area = 0;
  for (std::size_t i = 0; i < 201; ++i) area += 40 * filters[79 * 201 + i];
  CHECK(area == Catch::Approx(1).margin(0.02));
}

}  // namespace
}  // namespace troupe::data
