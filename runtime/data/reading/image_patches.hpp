// From an RGB picture to the rows a vision encoder takes.
//
// Pure.

#pragma once

#include <cstdint>
#include <vector>

#include "runtime/data/reading/options.hpp"
#include "runtime/data/reading/rgb_image.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::data {

/// One picture, cut into patches.
struct ImagePatches {
  /// Shape [grid_height * grid_width, 3 * frames * side * side], row-major. Rows go in Qwen2-VL's
  /// order: the merge x merge patches of one llm row stand together, llm rows left to right, then
  /// down. Columns are (channel, frame, y, x); all frames of a still picture are equal. Values are
  /// (byte / 255 - mean) / deviation with CLIP's constants per channel.
  std::vector<float> patches;
  std::int32_t grid_height = 0;  ///< Patches per column; a multiple of the merge size.
  std::int32_t grid_width = 0;

  friend bool operator==(const ImagePatches&, const ImagePatches&) = default;
};

/// Cuts a picture whose sides are multiples of `vision.factor()`. Cost: O(pixels x frames).
/// REQUIRES: such sides.
ImagePatches cut_patches(const RgbImage& image, const VisionInput& vision);

/// Resizes (see `smart_resize`, `resize_bicubic`) within the limits of `options`, normalises and
/// cuts for an encoder.
/// Errors: bad_data, as `smart_resize`.
Result<ImagePatches> prepare_image(const RgbImage& image, const DataOptions& options,
                                   const VisionInput& vision);

}  // namespace troupe::data
