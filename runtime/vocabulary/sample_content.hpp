// How many bytes the decoded content of samples has where it moves between nodes: the one rule that
// planners, checker, engine and simulator share, so that no size is ever negotiated.
//
// Pure. engine/execution/content_packing writes the bytes and reads them.

#pragma once

#include <cstdint>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/sample_pieces.hpp"
#include "runtime/vocabulary/sample_shape.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe {

inline constexpr std::int64_t kContentValueBytes = 4;  ///< Of one value of a picture or sound.
inline constexpr std::int64_t kContentPixelBytes = 1;  ///< Of one channel of a pixel.
inline constexpr std::int64_t kContentTokenBytes = 4;  ///< Of one token and whether it is trained.

/// As what rows that enter an encoder stand in a delivery.
enum class MediaForm : std::uint8_t {
  values,  ///< As the encoder reads them.
  pixels,  ///< The 8-bit pixels that they repeat, each once; who gets them makes the rows.
};

/// Bytes of one row. REQUIRES (pixels): `equal_frames` of it.
std::int64_t row_bytes(const ModuleMedia& media, MediaForm form);

/// The one that has fewest bytes, of those from which the rows can be made again to the bit; of
/// equal ones the values. Rows of media that say nothing of pixels move as they are.
MediaForm media_form(const ModuleMedia& media);

/// Placeholders in a sample's text, as it is before rows of media are known.
struct MarkerCounts {
  std::int32_t images = 0;
  std::int32_t audio = 0;

  friend bool operator==(const MarkerCounts&, const MarkerCounts&) = default;
};
MarkerCounts marker_counts(const SampleShape& sample);

/// Tokens of a sample's text, a placeholder for each picture or sound.
TokenCount encoded_tokens(const SampleShape& sample);

/// Bytes of a unit's media for an encoder, in their form; 0 where it has no items for it.
Bytes media_bytes(const SampleShape& unit, ModuleId encoder);

/// Bytes of what a delivery carries. REQUIRES: its samples are units.
Bytes content_bytes(const Delivery& delivery, const SampleUnits& units);

}  // namespace troupe
