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
  /// False: this process does not see it, and opens nothing of it.
  bool is_here = true;
  /// True: its media folder may be missing, where the list alone is read.
  bool may_lack_media = false;

  friend bool operator==(const DataSource&, const DataSource&) = default;
};

/// An encoder of the model and what it takes. `module`: its name in the job, for errors.
struct VisionEncoder {
  std::string module = "vision";
  VisionInput input = {};

  friend bool operator==(const VisionEncoder&, const VisionEncoder&) = default;
};
struct AudioEncoder {
  std::string module = "audio";
  AudioInput input = {};

  friend bool operator==(const AudioEncoder&, const AudioEncoder&) = default;
};

/// Some of the encoders of one medium: bit k is the k-th one of `DataOptions`.
using EncoderSet = std::uint32_t;
inline constexpr EncoderSet kEveryEncoder = ~EncoderSet{0};
inline constexpr std::size_t kEncodersMax = 32;  ///< Of a medium.

/// Everything that decides what a sample looks like to the model.
struct DataOptions {
  std::vector<DataSource> sources;  ///< Records are numbered through them in this order.
  /// The vision encoders, in the order of the model; each takes every picture. None: a sample with
  /// pictures is bad.
  std::vector<VisionEncoder> vision{VisionEncoder{}};
  std::vector<AudioEncoder> audio{AudioEncoder{}};  ///< The same for sounds.

  std::int64_t min_pixels = 3136;     ///< Smaller pictures are enlarged to at least this area.
  std::int64_t max_pixels = 1003520;  ///< Larger pictures are shrunk to at most this area.
  /// A file that claims more pixels is refused before it is decoded (memory, decompression bombs).
  std::int64_t decoded_pixels_max = 178956970;

  bool pad_audio = false;  ///< True: every window is padded with silence to 30 s.
  /// A clip that is longer is refused before it is decoded.
  std::int32_t audio_seconds_max = 3600;

  std::int64_t max_seq_len = 0;  ///< Longest llm sequence, media rows included; 0: no limit.
  std::uint64_t seed = 42;
  bool shuffle = true;  ///< False: every epoch goes in file order.

  friend bool operator==(const DataOptions&, const DataOptions&) = default;
};

/// Everything that makes no sense about these numbers; empty where they are sound. Each is an
/// invalid_argument: a size below one, a square of pictures or max_pixels below one llm row's
/// square (max_pixels: of encoders that say no square), max_pixels below min_pixels, mel_bins
/// outside 1..201, a negative max_seq_len, more than `kEncodersMax` encoders of a medium. `where`
/// is the job key.
std::vector<Error> problems_of(const DataOptions& options);

}  // namespace troupe::data
