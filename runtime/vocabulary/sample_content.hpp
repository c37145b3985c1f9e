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
inline constexpr std::int64_t kContentTokenBytes = 4;  ///< Of one token and whether it is trained.

/// Placeholders in a sample's text, as it is before rows of media are known.
struct MarkerCounts {
  std::int32_t images = 0;
  std::int32_t audio = 0;

  friend bool operator==(const MarkerCounts&, const MarkerCounts&) = default;
};
MarkerCounts marker_counts(const SampleShape& sample);

/// Tokens of a sample's text, a placeholder for each picture or sound.
TokenCount encoded_tokens(const SampleShape& sample);

/// Bytes of what an encoder reads of a unit; 0 where it has no items for it.
Bytes media_bytes(const SampleShape& unit, ModuleId encoder);

/// Bytes of what a delivery carries. REQUIRES: its samples are units.
Bytes content_bytes(const Delivery& delivery, const SampleUnits& units);

}  // namespace troupe
