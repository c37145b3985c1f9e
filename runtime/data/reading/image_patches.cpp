#include "runtime/data/reading/image_patches.hpp"

#include <array>

#include "runtime/data/reading/resize_image.hpp"

namespace troupe::data {
namespace {

constexpr std::array<double, 3> kClipMean{0.48145466, 0.4578275, 0.40821073};
constexpr std::array<double, 3> kClipDeviation{0.26862954, 0.26130258, 0.27577711};

using ByteTable = std::array<float, 256>;

/// The normalised value of each byte, per channel.
const std::array<ByteTable, 3>& byte_tables() {
  static const std::array<ByteTable, 3> tables = [] {
    std::array<ByteTable, 3> made{};
    for (std::size_t channel = 0; channel < 3; ++channel)
      for (std::size_t byte = 0; byte < 256; ++byte)
        made[channel][byte] = static_cast<float>(
            (static_cast<double>(byte) / 255 - kClipMean[channel]) / kClipDeviation[channel]);
    return made;
  }();
  return tables;
}

/// Appends one patch, whose top left pixel is `corner`. `frame`: room for a channel of it.
void append_patch(const RgbImage& image, const std::uint8_t* corner, const VisionInput& vision,
                  std::vector<float>& frame, std::vector<float>& out) {
  const std::ptrdiff_t line = std::ptrdiff_t{3} * image.width;
  for (std::size_t channel = 0; channel < 3; ++channel) {
    const ByteTable& table = byte_tables()[channel];
    float* to = frame.data();
    for (std::int32_t y = 0; y < vision.patch_size; ++y) {
      const std::uint8_t* pixel = corner + y * line + static_cast<std::ptrdiff_t>(channel);
      for (std::int32_t x = 0; x < vision.patch_size; ++x, pixel += 3) *to++ = table[*pixel];
    }
    for (std::int32_t copy = 0; copy < vision.temporal_patch_size; ++copy)
      out.insert(out.end(), frame.begin(), frame.end());
  }
}

}  // namespace

ImagePatches cut_patches(const RgbImage& image, const VisionInput& vision) {
  ImagePatches cut;
  cut.grid_height = image.height / vision.patch_size;
  cut.grid_width = image.width / vision.patch_size;
  // Not resized: that would write zeros first.
  cut.patches.reserve(static_cast<std::size_t>(cut.grid_height) *
                      static_cast<std::size_t>(cut.grid_width) *
                      static_cast<std::size_t>(vision.columns()));
  std::vector<float> frame(static_cast<std::size_t>(vision.patch_size) *
                           static_cast<std::size_t>(vision.patch_size));
  const std::int32_t merge = vision.merge_size;
  const auto corner = [&](std::int32_t row, std::int32_t column) {
    const std::ptrdiff_t pixel =
        std::ptrdiff_t{row} * vision.patch_size * image.width + column * vision.patch_size;
    return image.rgb.data() + 3 * pixel;
  };
  for (std::int32_t row = 0; row < cut.grid_height; row += merge)
    for (std::int32_t column = 0; column < cut.grid_width; column += merge)
      for (std::int32_t patch = 0; patch < merge * merge; ++patch)
        append_patch(image, corner(row + patch / merge, column + patch % merge), vision, frame,
                     cut.patches);
  return cut;
}

Result<ImagePatches> prepare_image(const RgbImage& image, const DataOptions& options,
                                   const VisionInput& vision) {
  auto size = smart_resize({image.width, image.height}, vision.factor(), options.min_pixels,
                           options.max_pixels);
  if (!size) return size.error();
  return cut_patches(resize_bicubic(image, size.value()), vision);
}

}  // namespace troupe::data
