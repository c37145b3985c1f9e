// Draws the demo's pictures and tones and writes media files.
//
// Drawing is pure; the writers are thread-safe for different paths.

#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/data/reading/rgb_image.hpp"
#include "runtime/vocabulary/random.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::data {

struct DemoColour {
  std::string_view name;
  std::array<std::uint8_t, 3> rgb;
};
inline constexpr std::array<DemoColour, 6> kDemoColours{{{"red", {214, 40, 40}},
                                                         {"green", {40, 160, 60}},
                                                         {"blue", {40, 80, 210}},
                                                         {"yellow", {240, 200, 30}},
                                                         {"purple", {140, 50, 170}},
                                                         {"black", {20, 20, 20}}}};

enum class DemoShape : std::uint8_t { circle, square, triangle, cross };
inline constexpr std::array<std::string_view, 4> kDemoShapes{"circle", "square", "triangle",
                                                             "cross"};

struct DemoTone {
  std::string_view name;
  double hertz;
};
inline constexpr std::array<DemoTone, 3> kDemoTones{
    {{"low", 300}, {"middle", 800}, {"high", 2000}}};

/// A word of the demo and how many letters it has, as a word.
struct DemoWord {
  std::string_view text;
  std::string_view letters;
};
/// Of the colours and shapes; takes one number, or a few.
DemoWord random_word(Random& random);

/// One shape on a plain background.
struct DemoPicture {
  std::int32_t width = 0;
  std::int32_t height = 0;
  DemoShape shape = DemoShape::circle;
  std::size_t colour = 0;  ///< Index into kDemoColours.
  std::int32_t center_x = 0;
  std::int32_t center_y = 0;
  std::int32_t radius = 0;  ///< Half the side of the square around the shape.
  std::array<std::uint8_t, 3> background{255, 255, 255};
};

/// True where a pixel belongs to the shape.
bool covers(const DemoPicture& picture, std::int32_t x, std::int32_t y);
RgbImage draw(const DemoPicture& picture);

/// Tones one after another, each 0.2 s with soft ends and 0.05 s of silence after it; peak 0.5.
/// `tones` are indices into kDemoTones. Mono at `rate`.
std::vector<float> play(std::span<const std::size_t> tones, std::int32_t rate);

/// Writers. Errors: io_failed, with the path.
Status write_jpeg(const std::filesystem::path& path, const RgbImage& image);
Status write_png(const std::filesystem::path& path, const RgbImage& image);
/// The shape alone, everything around it transparent.
Status write_cut_out_png(const std::filesystem::path& path, const DemoPicture& picture);
/// 16-bit WAV; with two channels both hold the samples.
Status write_wav(const std::filesystem::path& path, std::span<const float> samples,
                 std::int32_t rate, std::int32_t channels);

}  // namespace troupe::data
