// Reads an audio file as mono samples at 16 kHz.
//
// Pure apart from reading the file; thread-safe.

#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "runtime/vocabulary/result.hpp"

namespace troupe::data {

inline constexpr std::int32_t kSampleRate = 16000;

/// Decodes what libsndfile knows (WAV, FLAC, OGG, MP3, AIFF ...): the mean of all channels,
/// resampled to 16 kHz by soxr at high quality where the rate differs. Full scale is 1.
///
/// Errors:
/// - bad_data: empty, not a known format, truncated (fewer samples than announced), no samples,
///   a rate outside 1..768 kHz, longer than `seconds_max`, or a sample that is not a finite number.
Result<std::vector<float>> decode_audio(std::string_view bytes, std::int32_t seconds_max);

/// Samples at 16 kHz that an audio file announces. Errors: as `read_audio`, as far as a header
/// tells.
Result<std::int64_t> audio_samples(const std::filesystem::path& path, std::int32_t seconds_max);

/// Reads and decodes a file; a large one is refused by its header, before it is read. Errors: as
/// `decode_audio` and `read_file`.
Result<std::vector<float>> read_audio(const std::filesystem::path& path, std::int32_t seconds_max);

}  // namespace troupe::data
