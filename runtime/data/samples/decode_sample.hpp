// From a record to what the model takes: tokens, image patches, mel windows; or why not.
//
// Pure apart from reading the record's files; thread-safe. Never throws.

#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "runtime/data/reading/encode_text.hpp"
#include "runtime/data/reading/image_patches.hpp"
#include "runtime/data/samples/bad_sample.hpp"
#include "runtime/data/samples/dataset.hpp"
#include "runtime/vocabulary/sample_shape.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::data {

class LengthIndex;

/// One window of at most 30 s of a clip.
struct AudioWindow {
  std::vector<float> mel;   ///< Whisper's log-mel features, shape [frames, bins], row-major.
  std::int32_t frames = 0;  ///< 10 ms each: samples at 16 kHz / 160, rounded down; 1..3000.
  std::int32_t marker = 0;  ///< Which `<audio>` of the sample it belongs to.

  friend bool operator==(const AudioWindow&, const AudioWindow&) = default;
};

/// Which parts of a sample a node needs: a node with one encoder reads the files of that one alone.
struct WantedParts {
  EncoderSet images = kEveryEncoder;  ///< The vision encoders that it makes patches for.
  EncoderSet audio = kEveryEncoder;
  bool text = true;

  friend bool operator==(const WantedParts&, const WantedParts&) = default;
};

/// A good sample. Parts that were not wanted are empty.
struct DecodedSample {
  std::string id;
  std::string where;          ///< `file:line` of its record.
  std::int64_t position = 0;  ///< Place in the epoch's order; set by who asks.
  EncodedText text;           ///< One placeholder per media file; see `expand_text`.
  /// Per vision encoder of `DataOptions` one per `<image>` marker; none for encoders that were not
  /// wanted.
  std::vector<std::vector<ImagePatches>> images;
  std::vector<std::vector<AudioWindow>> audio;  ///< Per audio encoder, all windows of all clips.
  TokenCount llm_tokens = 0;  ///< Length of its llm sequence; 0 where media of it were not wanted.
  TokenCount trained_tokens = 0;

  /// Memory it holds, about.
  Bytes bytes() const;
  friend bool operator==(const DecodedSample&, const DecodedSample&) = default;
};

/// A sample, or why it is dropped.
using DecodeOutcome = std::variant<DecodedSample, BadSample>;

/// Reads and prepares one record.
///
/// Checked in this order, the first fault is reported: malformed record, media without encoder,
/// marker mismatch, no trained token, each image, each audio file, length. Files of media that are
/// not wanted are not touched: their faults are left to the nodes that read them, and the length to
/// whoever joins what the nodes found. `index`: is told the lengths that are found; null: nobody.
DecodeOutcome decode_sample(const Dataset& dataset, const Record& record,
                            const DataOptions& options, WantedParts wanted = {},
                            LengthIndex* index = nullptr);

/// Length of its llm sequence: placeholders give way to the rows that come for them. REQUIRES: text
/// and all media are there, of encoders of `options`.
TokenCount llm_length(const DecodedSample& sample, const DataOptions& options);

/// The encoders of the model graph that take media, in the order of `DataOptions`, which is that of
/// the graph.
struct MediaModules {
  std::vector<ModuleId> vision;
  std::vector<ModuleId> audio;
};

/// Where the text has markers, and of which encoder: one for each encoder of the medium.
std::vector<MediaMarker> markers_of(const EncodedText& text, const MediaModules& modules);

/// What planners need of a sample: the media that were wanted, and its lengths. REQUIRES: a module
/// for each encoder of `options`.
SampleShape shape_of(const DecodedSample& sample, const DataOptions& options,
                     const MediaModules& modules);

/// What is known of pictures for a vision encoder before there are any: their rows are what
/// `cut_patches` makes of pixels.
ModuleMedia no_pictures(ModuleId module, const VisionInput& vision);
/// Rows of the vision encoder for a picture of this grid; `marker`: which `<image>` it belongs to.
MediaShape image_shape(std::int32_t grid_height, std::int32_t grid_width, const VisionInput& vision,
                       std::int32_t marker);
/// Rows of the audio encoder for a window; with Whisper's sizes: frames in, frames / 2 rounded up
/// between layers and out.
MediaShape audio_shape(std::int32_t frames, const AudioInput& audio, std::int32_t marker);

}  // namespace troupe::data
