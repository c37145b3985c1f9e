// Sizes and resampling of pictures: Qwen2-VL's smart resize, Pillow's bicubic.
//
// Pure.

#pragma once

#include <cstdint>

#include "runtime/data/reading/options.hpp"
#include "runtime/data/reading/rgb_image.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::data {

struct ImageSize {
  std::int32_t width = 0;
  std::int32_t height = 0;

  friend bool operator==(const ImageSize&, const ImageSize&) = default;
};

/// The size a picture is resized to: multiples of `factor`, the area within the pixel bounds where
/// that is possible, the aspect about kept (Qwen2-VL's `smart_resize`, with its rounding of halves
/// to even; a side is never less than `factor`).
///
/// Errors:
/// - bad_data: the longer side is more than 200 times the shorter one.
Result<ImageSize> smart_resize(ImageSize size, std::int32_t factor, std::int64_t min_pixels,
                               std::int64_t max_pixels);

/// Pillow 13's `resize(size, BICUBIC)`, to the bit: two separable passes on bytes, a = -0.5,
/// support widened when shrinking, weights of 22 fractional bits; across then down, or down first
/// where the height loses more than twice as many pixels as the width (before version 13 always
/// across first). Cost: O(pixels x taps); a pass whose size stays is skipped. REQUIRES: a non-empty
/// image and size.
RgbImage resize_bicubic(const RgbImage& image, ImageSize size);

}  // namespace troupe::data
