// How long a sample will be, from its text and the headers of its media, or from an index of them:
// nothing is decoded.
//
// For planners: also each batch that is trained is measured before it is decoded. The two
// agree for every sound file. A file that is damaged behind its header counts as good here.
// Pure apart from reading the record's files; thread-safe.

#pragma once

#include <cstdint>
#include <filesystem>
#include <variant>

#include "runtime/data/reading/resize_image.hpp"
#include "runtime/data/samples/decode_sample.hpp"

namespace troupe::data {

class SampleLengths;

/// A sample's lengths (`position` is 0), or why it would be dropped.
using MeasureOutcome = std::variant<SampleShape, BadSample>;

/// Measures one record. Checks in the order of `decode_sample`. Never throws.
MeasureOutcome measure_sample(const Dataset& dataset, const Record& record,
                              const DataOptions& options, const MediaModules& modules);
/// The same by way of an index. `lengths`: of this record's source, made for it alone.
MeasureOutcome measure_sample(const Dataset& dataset, const Record& record,
                              const DataOptions& options, const MediaModules& modules,
                              SampleLengths& lengths);

/// Width and height that a JPEG or PNG file announces.
/// Errors: not_found, io_failed, bad_data (neither format, no header, more than `pixels_max`).
Result<ImageSize> image_size(const std::filesystem::path& path, std::int64_t pixels_max);

}  // namespace troupe::data
