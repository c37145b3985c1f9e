// How long a sample will be, from its text and the headers of its media: nothing is decoded.
//
// For planners that look at many samples; the loader's own lengths come from decoding. The two
// agree for every sound file. A file that is damaged behind its header counts as good here.
// Pure apart from reading the record's files; thread-safe.

#pragma once

#include <cstdint>
#include <filesystem>
#include <variant>

#include "runtime/data/reading/resize_image.hpp"
#include "runtime/data/samples/decode_sample.hpp"

namespace troupe::data {

/// A sample's lengths (`position` is 0), or why it would be dropped.
using MeasureOutcome = std::variant<SampleShape, BadSample>;

/// Measures one record. Checks in the order of `decode_sample`. Never throws.
MeasureOutcome measure_sample(const Dataset& dataset, const Record& record,
                              const DataOptions& options, const MediaModules& modules);

/// Width and height that a JPEG or PNG file announces.
/// Errors: not_found, io_failed, bad_data (neither format, no header, more than `pixels_max`).
Result<ImageSize> image_size(const std::filesystem::path& path, std::int64_t pixels_max);

}  // namespace troupe::data
