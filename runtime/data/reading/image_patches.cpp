#include "runtime/data/reading/image_patches.hpp"

#include <algorithm>
#include <array>

#include "runtime/data/reading/resize_image.hpp"

namespace troupe::data {
namespace {

using ByteTable = std::array<float, 256>;

/// The normalised value of each byte, per channel. Made anew for each picture, which has hundreds
/// of times as many values.
std::array<ByteTable, 3> byte_tables(const PixelScale& scale) {
  std::array<ByteTable, 3> made{};
  for (std::size_t channel = 0; channel < 3; ++channel)
    for (std::size_t byte = 0; byte < 256; ++byte)
      made[channel][byte] = static_cast<float>(
          (static_cast<double>(byte) / 255 - scale.mean[channel]) / scale.deviation[channel]);
  return made;
}

/// Where the bytes of a patch stand: how far it is to the next pixel of a line, to the next line
/// and to the same pixel of the next channel.
struct PatchBytes {
  std::ptrdiff_t pixel = 0, line = 0, channel = 0;
  std::int32_t lines = 0, pixels = 0;  ///< Of a channel, and of a line.
};

/// Appends one patch, whose first byte is `corner`. `frame`: room for a channel of it.
void append_patch(const std::uint8_t* corner, const PatchBytes& bytes, std::int32_t frames,
                  const std::array<ByteTable, 3>& tables, std::vector<float>& frame,
                  std::vector<float>& out) {
  for (std::size_t channel = 0; channel < 3; ++channel) {
    const ByteTable& table = tables[channel];
    const std::uint8_t* line = corner + static_cast<std::ptrdiff_t>(channel) * bytes.channel;
    float* to = frame.data();
    for (std::int32_t y = 0; y < bytes.lines; ++y, line += bytes.line) {
      const std::uint8_t* pixel = line;
      for (std::int32_t x = 0; x < bytes.pixels; ++x, pixel += bytes.pixel) *to++ = table[*pixel];
    }
    for (std::int32_t copy = 0; copy < frames; ++copy)
      out.insert(out.end(), frame.begin(), frame.end());
  }
}

/// The byte that a channel's table has this value for; none: there is no such byte.
std::optional<std::uint8_t> byte_of(float value, double mean, double deviation,
                                    const ByteTable& table) {
  const double near = (static_cast<double>(value) * deviation + mean) * 255 + 0.5;
  if (!(near >= 0 && near < 256)) return std::nullopt;
  const auto byte = static_cast<std::uint8_t>(near);
  if (table[byte] != value) return std::nullopt;
  return byte;
}

}  // namespace

ImagePatches cut_patches(const RgbImage& image, const VisionInput& vision) {
  ImagePatches cut;
  cut.grid_height = vision.patches_along(image.height);
  cut.grid_width = vision.patches_along(image.width);
  // Not resized: that would write zeros first.
  cut.patches.reserve(static_cast<std::size_t>(cut.grid_height) *
                      static_cast<std::size_t>(cut.grid_width) *
                      static_cast<std::size_t>(vision.columns()));
  std::vector<float> frame(static_cast<std::size_t>(vision.patch_size) *
                           static_cast<std::size_t>(vision.patch_size));
  const PatchBytes bytes{3, std::ptrdiff_t{3} * image.width, 1, vision.patch_size,
                         vision.patch_size};
  const auto tables = byte_tables(vision.scale);
  const std::int32_t merge = vision.merge_size;
  const auto corner = [&](std::int32_t row, std::int32_t column) {
    const std::ptrdiff_t pixel =
        std::ptrdiff_t{row} * vision.patch_size * image.width + column * vision.patch_size;
    return image.rgb.data() + 3 * pixel;
  };
  for (std::int32_t row = 0; row < cut.grid_height; row += merge)
    for (std::int32_t column = 0; column < cut.grid_width; column += merge)
      for (std::int32_t patch = 0; patch < merge * merge; ++patch)
        append_patch(corner(row + patch / merge, column + patch % merge), bytes,
                     vision.temporal_patch_size, tables, frame, cut.patches);
  return cut;
}

std::optional<std::vector<std::uint8_t>> patch_pixels(const ImagePatches& picture,
                                                      std::int32_t frames,
                                                      const PixelScale& scale) {
  const auto rows =
      static_cast<std::size_t>(picture.grid_height) * static_cast<std::size_t>(picture.grid_width);
  const auto copies = static_cast<std::size_t>(frames);
  if (rows == 0 || copies == 0 || picture.patches.size() % (rows * 3 * copies) != 0)
    return std::nullopt;
  const std::size_t area = picture.patches.size() / (rows * 3 * copies);
  std::vector<std::uint8_t> pixels;
  pixels.reserve(rows * 3 * area);
  const auto tables = byte_tables(scale);
  auto values = std::span(picture.patches);
  for (std::size_t plane = 0; plane < rows * 3; ++plane, values = values.subspan(copies * area)) {
    const auto frame = values.first(area);
    for (std::size_t copy = 1; copy < copies; ++copy)
      if (!std::ranges::equal(frame, values.subspan(copy * area, area))) return std::nullopt;
    const std::size_t channel = plane % 3;
    for (const float value : frame) {
      const auto byte =
          byte_of(value, scale.mean[channel], scale.deviation[channel], tables[channel]);
      if (!byte) return std::nullopt;
      pixels.push_back(*byte);
    }
  }
  return pixels;
}

ImagePatches patches_of(std::span<const std::uint8_t> pixels, std::int32_t grid_height,
                        std::int32_t grid_width, std::int32_t frames, const PixelScale& scale) {
  ImagePatches cut;
  cut.grid_height = grid_height;
  cut.grid_width = grid_width;
  const auto rows = static_cast<std::size_t>(grid_height) * static_cast<std::size_t>(grid_width);
  const std::size_t area = pixels.size() / (rows * 3);
  cut.patches.reserve(pixels.size() * static_cast<std::size_t>(frames));
  std::vector<float> frame(area);
  const PatchBytes bytes{1, 0, static_cast<std::ptrdiff_t>(area), 1,
                         static_cast<std::int32_t>(area)};
  const auto tables = byte_tables(scale);
  for (std::size_t row = 0; row < rows; ++row)
    append_patch(pixels.data() + row * 3 * area, bytes, frames, tables, frame, cut.patches);
  return cut;
}

Result<ImagePatches> prepare_image(const RgbImage& image, const DataOptions& options,
                                   const VisionInput& vision) {
  const auto fit =
      fit_image({image.width, image.height}, vision, options.min_pixels, options.max_pixels);
  if (!fit) return fit.error();
  return cut_patches(resize_image(image, fit.value(), vision.resize.filter), vision);
}

}  // namespace troupe::data
