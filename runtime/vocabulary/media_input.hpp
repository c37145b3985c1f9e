// How pictures and sounds become rows of an encoder: what the data part must know of the encoder
// that takes them.
//
// Values alone: the data part makes the rows of every family, so that a picture's follow from these
// and its resized 8-bit pixels, whoever wrote the family. Where pictures move between nodes their
// pixels do (sample_content.hpp).

#pragma once

#include <array>
#include <cstdint>

namespace troupe {

/// Which media of a sample an encoder takes.
enum class Medium : std::uint8_t { none, image, audio };

/// How the bytes of a picture become numbers, per channel: (byte / 255 - mean) / deviation. An
/// encoder that begins with trained weights needs those that it was trained with. CLIP's, as
/// Qwen2-VL has them, where nobody says otherwise.
struct PixelScale {
  std::array<double, 3> mean{0.48145466, 0.4578275, 0.40821073};        ///< From -1000 to 1000.
  std::array<double, 3> deviation{0.26862954, 0.26130258, 0.27577711};  ///< From 1e-6 to 1e6.

  friend bool operator==(const PixelScale&, const PixelScale&) = default;
};

/// How pictures come to the size in which they are cut.
enum class ResizeMode : std::uint8_t {
  by_area,  ///< About as they are, within `data.min_pixels` and `data.max_pixels` (Qwen2-VL).
  stretch,  ///< To a square, whatever their sides are to each other (SigLIP).
  crop,     ///< The shorter side to the square's; of the longer one the middle is kept (CLIP).
};

/// Which neighbours a new pixel is weighed from, as Pillow's filters of these names.
enum class PixelFilter : std::uint8_t { bicubic, bilinear };

/// The size that an encoder takes pictures in. In a square each has the same rows.
struct PictureResize {
  ResizeMode mode = ResizeMode::by_area;
  std::int32_t side = 0;  ///< Of the square, pixels; 0 by area.
  PixelFilter filter = PixelFilter::bicubic;

  /// Whether every picture comes to one size, which limits of pixels do not concern.
  bool is_fixed() const { return mode != ResizeMode::by_area; }
  friend bool operator==(const PictureResize&, const PictureResize&) = default;
};

/// What a vision encoder takes: sizes as in Qwen2-VL.
struct VisionInput {
  std::int32_t patch_size = 14;          ///< Pixels per patch side.
  std::int32_t merge_size = 2;           ///< Patches per side that become one llm row.
  std::int32_t temporal_patch_size = 2;  ///< A picture is repeated to this many frames.
  /// Rows that each picture hands to the llm, as a resampler's queries; 0: one per
  /// merge_size x merge_size patches.
  std::int32_t rows_per_image = 0;
  PixelScale scale = {};
  PictureResize resize = {};

  /// Side of the square of pixels behind one llm row; sizes are rounded to multiples of it.
  std::int32_t factor() const { return patch_size * merge_size; }
  /// Patches along a side of so many pixels, in whole llm rows; what is left over at its end has
  /// none, as under a convolution without padding.
  std::int32_t patches_along(std::int32_t pixels) const { return pixels / factor() * merge_size; }
  /// The same of the square of `resize`; 0 where there is none.
  std::int32_t square_patches() const { return patches_along(resize.side); }
  /// Columns of one patch row: 3 channels x frames x side x side.
  std::int32_t columns() const { return 3 * temporal_patch_size * patch_size * patch_size; }

  friend bool operator==(const VisionInput&, const VisionInput&) = default;
};

/// Sizes of an audio encoder's input: windows of up to 30 s of log-mel frames, 10 ms each.
struct AudioInput {
  std::int32_t mel_bins = 80;       ///< 80, or 128 for whisper-large-v3.
  std::int32_t frames_per_row = 2;  ///< Frames that become one row between layers, rounded up.
  std::int32_t pooled_rows = 1;     ///< Rows between layers that become one llm row, rounded up.
  /// Rows that each window hands to the llm, as a resampler's queries; 0: by `pooled_rows`.
  std::int32_t rows_per_window = 0;

  friend bool operator==(const AudioInput&, const AudioInput&) = default;
};

/// What an encoder takes; only the member of its medium means something.
struct MediaInput {
  Medium medium = Medium::none;
  VisionInput vision = {};
  AudioInput audio = {};

  friend bool operator==(const MediaInput&, const MediaInput&) = default;
};

}  // namespace troupe
