// What the data part of a job is told: where samples are, which media the model takes, and limits.
//
// Values only. The job file fills them; every node of a job must have the same ones, because each
// node derives order, lengths and bad samples from them alone.

#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/vocabulary/media_input.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::data {

/// One file of samples, as LLaVA's JSON (an array, or one object per line), and its media folder.
struct DataSource {
  std::filesystem::path json;
  std::filesystem::path media;   ///< Media paths are relative to it; empty: the JSON file's folder.
  std::string format = "llava";  ///< One of `format_names`.

  friend bool operator==(const DataSource&, const DataSource&) = default;
};

/// Everything that decides what a sample looks like to the model.
struct DataOptions {
  std::vector<DataSource> sources;  ///< Records are numbered through them in this order.
  bool takes_images = true;         ///< False: a sample with images is bad (no encoder for them).
  bool takes_audio = true;          ///< False: a sample with audio is bad.

  std::int64_t min_pixels = 3136;     ///< Smaller pictures are enlarged to at least this area.
  std::int64_t max_pixels = 1003520;  ///< Larger pictures are shrunk to at most this area.
  VisionInput vision;
  /// A file that claims more pixels is refused before it is decoded (memory, decompression bombs).
  std::int64_t decoded_pixels_max = 178956970;

  AudioInput audio;
  bool pad_audio = false;  ///< True: every window is padded with silence to 30 s.
  /// A clip that is longer is refused before it is decoded.
  std::int32_t audio_seconds_max = 3600;

  std::int64_t max_seq_len = 0;  ///< Longest llm sequence, media rows included; 0: no limit.
  std::uint64_t seed = 42;
  bool shuffle = true;  ///< False: every epoch goes in file order.

  friend bool operator==(const DataOptions&, const DataOptions&) = default;
};

/// Everything that makes no sense about these numbers; empty where they are sound. Each is an
/// invalid_argument: a size below one, max_pixels below one llm row's square or below min_pixels,
/// mel_bins outside 1..201, a negative max_seq_len. `where` is the job key.
std::vector<Error> problems_of(const DataOptions& options);

}  // namespace troupe::data
