// Sizes and resampling of pictures: Qwen2-VL's smart resize, squares, Pillow's filters.
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

/// Some of a picture's pixels: a rectangle.
struct ImageArea {
  std::int32_t left = 0;
  std::int32_t top = 0;
  ImageSize size = {};

  friend bool operator==(const ImageArea&, const ImageArea&) = default;
};

/// What becomes of a picture: it is resized to `size`, of which the pixels of `kept` are cut.
struct ImageFit {
  ImageSize size = {};
  ImageArea kept = {};

  friend bool operator==(const ImageFit&, const ImageFit&) = default;
};

/// Resized to this, all of which is kept.
ImageFit uncropped(ImageSize size);

/// How a picture of this size fits an encoder: by `smart_resize` within the pixel bounds, or in the
/// square that the encoder says. To crop, the longer side becomes side x longer / shorter, rounded
/// down, and half of what is too much, rounded down, goes before the square (as CLIP's processor
/// has it in Hugging Face's transformers).
///
/// Errors:
/// - bad_data: as `smart_resize`, for squares too.
Result<ImageFit> fit_image(ImageSize size, const VisionInput& vision, std::int64_t min_pixels,
                           std::int64_t max_pixels);

/// Pillow 13's `resize(fit.size, filter)` and then `crop` to `fit.kept`, to the bit: two separable
/// passes on bytes, a = -0.5 (bicubic), support widened when shrinking, weights of 22 fractional
/// bits; across then down, or down first where the height loses more than twice as many pixels as
/// the width (before version 13 always across first). Only what is kept is computed. Cost: O(pixels
/// x taps); a pass that changes nothing is skipped. REQUIRES: a non-empty image and area, which
/// lies in `fit.size`.
RgbImage resize_image(const RgbImage& image, const ImageFit& fit, PixelFilter filter);

}  // namespace troupe::data
