#include "runtime/vocabulary/sample_content.hpp"

#include <algorithm>

#include "runtime/vocabulary/module_rows.hpp"

namespace troupe {

MarkerCounts marker_counts(const SampleShape& sample) {
  MarkerCounts counts;
  for (const ModuleMedia& media : sample.media) {
    // Each encoder of a medium has all its markers.
    auto& own = media.items.front().grid_height > 0 ? counts.images : counts.audio;
    if (own > 0) continue;
    own = static_cast<std::int32_t>(
        std::count_if(sample.markers.begin(), sample.markers.end(),
                      [&](const MediaMarker& marker) { return marker.module == media.module; }));
  }
  return counts;
}

TokenCount encoded_tokens(const SampleShape& sample) {
  const auto [images, audio] = marker_counts(sample);
  return text_rows(sample) + images + audio;
}

std::int64_t row_bytes(const ModuleMedia& media, MediaForm form) {
  return form == MediaForm::pixels ? media.columns / media.equal_frames * kContentPixelBytes
                                   : media.columns * kContentValueBytes;
}

MediaForm media_form(const ModuleMedia& media) {
  const bool has_pixels = media.equal_frames > 0 && media.columns % (3 * media.equal_frames) == 0;
  return has_pixels && row_bytes(media, MediaForm::pixels) < row_bytes(media, MediaForm::values)
             ? MediaForm::pixels
             : MediaForm::values;
}

Bytes media_bytes(const SampleShape& unit, ModuleId encoder) {
  std::int64_t bytes = 0;
  for (const ModuleMedia& media : unit.media) {
    if (media.module != encoder) continue;
    const std::int64_t of_row = row_bytes(media, media_form(media));
    for (const MediaShape& item : media.items) bytes += item.input_rows * of_row;
  }
  return Bytes{bytes};
}

Bytes content_bytes(const Delivery& delivery, const SampleUnits& units) {
  Bytes bytes;
  for (const std::int32_t unit : delivery.samples) {
    const SampleShape& shape = units.shape(unit);
    bytes += delivery.encoder.valid() ? media_bytes(shape, delivery.encoder)
                                      : Bytes{encoded_tokens(shape) * kContentTokenBytes};
  }
  return bytes;
}

}  // namespace troupe
