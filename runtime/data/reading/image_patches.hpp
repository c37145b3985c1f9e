// From an RGB picture to the rows a vision encoder takes, and back to the bytes that these are of.
//
// Pure.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
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
  /// those of `VisionInput::scale`.
  std::vector<float> patches;
  std::int32_t grid_height = 0;  ///< Patches per column; a multiple of the merge size.
  std::int32_t grid_width = 0;

  friend bool operator==(const ImagePatches&, const ImagePatches&) = default;
};

/// Cuts a picture. What is beyond the last multiple of `vision.factor()` of a side is left out.
/// Cost: O(pixels x frames). REQUIRES: sides of at least `vision.factor()`.
ImagePatches cut_patches(const RgbImage& image, const VisionInput& vision);

/// The bytes of the pixels that `cut_patches` cut into this picture, patch by patch in the order of
/// its rows, shape [grid_height * grid_width, 3, side, side]: a byte for each of `frames` equal
/// values of 4 bytes. A row follows from them and the encoder's `scale`, which is why pictures may
/// move between nodes in this form.
/// None: these are no values that `cut_patches` makes of a picture by this scale, or its frames are
/// not equal. Cost: O(values).
std::optional<std::vector<std::uint8_t>> patch_pixels(const ImagePatches& picture,
                                                      std::int32_t frames,
                                                      const PixelScale& scale = {});

/// The picture again, to the bit: by the code that cuts one. Cost: O(pixels x frames).
/// REQUIRES: `pixels` as `patch_pixels` gives them, of a picture with this grid; frames >= 1.
ImagePatches patches_of(std::span<const std::uint8_t> pixels, std::int32_t grid_height,
                        std::int32_t grid_width, std::int32_t frames, const PixelScale& scale = {});

/// Resizes (see `fit_image`, `resize_image`), within the limits of `options` where the encoder says
/// no size, normalises and cuts for an encoder.
/// Errors: bad_data, as `fit_image`.
Result<ImagePatches> prepare_image(const RgbImage& image, const DataOptions& options,
                                   const VisionInput& vision);

}  // namespace troupe::data
