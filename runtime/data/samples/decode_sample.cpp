#include "runtime/data/samples/decode_sample.hpp"

#include <algorithm>
#include <exception>
#include <optional>

#include "runtime/data/reading/log_mel.hpp"
#include "runtime/data/reading/read_audio.hpp"
#include "runtime/data/reading/read_image.hpp"
#include "runtime/data/samples/sample_lengths.hpp"
#include "runtime/data/samples/text_lengths.hpp"

namespace troupe::data {
namespace {

using Fault = std::optional<BadSample>;

bool wants(EncoderSet set, std::size_t encoder) { return (set >> encoder & 1) != 0; }

bool wants_all(EncoderSet set, std::size_t encoders) {
  for (std::size_t encoder = 0; encoder < encoders; ++encoder)
    if (!wants(set, encoder)) return false;
  return true;
}

Fault decode_images(const Dataset& dataset, const Record& record, const DataOptions& options,
                    EncoderSet wanted, SampleLengths& lengths, DecodedSample& sample) {
  for (const auto& name : record.images) {
    const auto path = dataset.media_path(record, name);
    const auto before = lengths.before_image(path, options.decoded_pixels_max);
    auto image = read_image(path, options.decoded_pixels_max);
    if (!image) return bad_media(record, name, image.error());
    lengths.found_image(before, path, {image.value().width, image.value().height});
    for (std::size_t encoder = 0; encoder < options.vision.size(); ++encoder) {
      if (!wants(wanted, encoder)) continue;
      auto patches = prepare_image(image.value(), options, options.vision[encoder].input);
      if (!patches) return bad_media(record, name, patches.error());
      sample.images[encoder].push_back(std::move(patches).value());
    }
  }
  return std::nullopt;
}

Fault decode_clips(const Dataset& dataset, const Record& record, const DataOptions& options,
                   EncoderSet wanted, SampleLengths& lengths, DecodedSample& sample) {
  std::int32_t marker = 0;
  for (const auto& name : record.audio) {
    const auto path = dataset.media_path(record, name);
    const auto before = lengths.before_clip(path, options.audio_seconds_max);
    auto clip = read_audio(path, options.audio_seconds_max);
    if (!clip) return bad_media(record, name, clip.error());
    lengths.found_clip(before, path, std::ssize(clip.value()));
    for (std::size_t encoder = 0; encoder < options.audio.size(); ++encoder) {
      if (!wants(wanted, encoder)) continue;
      auto windows =
          log_mel_windows(clip.value(), options.audio[encoder].input.mel_bins, options.pad_audio);
      if (!windows) return bad_media(record, name, windows.error());
      for (auto& window : windows.value())
        sample.audio[encoder].push_back({std::move(window.mel), window.frames, marker});
    }
    ++marker;
  }
  return std::nullopt;
}

DecodeOutcome decode(const Dataset& dataset, const Record& record, const DataOptions& options,
                     WantedParts wanted, SampleLengths& lengths) {
  DecodedSample sample;
  sample.id = record.id;
  sample.where = record.where;
  sample.text = encode_text(record.turns);
  sample.trained_tokens = sample.text.trained_tokens();
  lengths.found_text(record, sample.text);
  if (auto fault = find_text_fault(record, text_lengths(sample.text), options)) return *fault;
  sample.images.resize(options.vision.size());
  sample.audio.resize(options.audio.size());
  if (wanted.images != 0)
    if (auto fault = decode_images(dataset, record, options, wanted.images, lengths, sample))
      return *fault;
  if (wanted.audio != 0)
    if (auto fault = decode_clips(dataset, record, options, wanted.audio, lengths, sample))
      return *fault;
  const bool is_whole =
      (wants_all(wanted.images, options.vision.size()) || record.images.empty()) &&
      (wants_all(wanted.audio, options.audio.size()) || record.audio.empty());
  if (is_whole) {
    sample.llm_tokens = llm_length(sample, options);
    if (options.max_seq_len > 0 && sample.llm_tokens > options.max_seq_len)
      return too_long(record.id, record.where, sample.llm_tokens, options.max_seq_len);
  }
  if (!wanted.text) sample.text = {};
  return sample;
}

}  // namespace

TokenCount llm_length(const DecodedSample& sample, const DataOptions& options) {
  TokenCount tokens =
      std::ssize(sample.text.tokens) - sample.text.image_markers - sample.text.audio_markers;
  for (std::size_t encoder = 0; encoder < sample.images.size(); ++encoder)
    for (const auto& image : sample.images[encoder])
      tokens += image_shape(image.grid_height, image.grid_width, options.vision[encoder].input, 0)
                    .output_rows;
  for (std::size_t encoder = 0; encoder < sample.audio.size(); ++encoder)
    for (const auto& window : sample.audio[encoder])
      tokens += audio_shape(window.frames, options.audio[encoder].input, window.marker).output_rows;
  return tokens;
}

Bytes DecodedSample::bytes() const {
  std::size_t count = sizeof(*this) + id.size() + where.size() +
                      (text.tokens.size() + text.labels.size()) * sizeof(TokenId);
  for (const auto& encoder : images)
    for (const auto& image : encoder) count += image.patches.size() * sizeof(float);
  for (const auto& encoder : audio)
    for (const auto& window : encoder) count += window.mel.size() * sizeof(float);
  return Bytes{static_cast<std::int64_t>(count)};
}

DecodeOutcome decode_sample(const Dataset& dataset, const Record& record,
                            const DataOptions& options, WantedParts wanted, LengthIndex* index) {
  try {
    SampleLengths lengths(index, record.source);
    return decode(dataset, record, options, wanted, lengths);
  } catch (const std::exception& fault) {  // Out of memory; a path the file system cannot hold.
    constexpr auto kind = BadKind::unreadable_media;
    return BadSample{record.id, kind, {}, record.where, fault.what(), std::string(fix_of(kind))};
  }
}

MediaShape image_shape(std::int32_t grid_height, std::int32_t grid_width, const VisionInput& vision,
                       std::int32_t marker) {
  const std::int32_t patches = grid_height * grid_width;
  return {.input_rows = patches,
          .hidden_rows = patches,
          .output_rows = vision.rows_per_image > 0
                             ? vision.rows_per_image
                             : patches / (vision.merge_size * vision.merge_size),
          .grid_height = grid_height,
          .grid_width = grid_width,
          .marker = marker};
}

MediaShape audio_shape(std::int32_t frames, const AudioInput& audio, std::int32_t marker) {
  const auto joined = [](std::int32_t rows, std::int32_t group) {
    return (rows + group - 1) / group;
  };
  const std::int32_t rows = joined(frames, audio.frames_per_row);
  return {.input_rows = frames,
          .hidden_rows = rows,
          .output_rows =
              audio.rows_per_window > 0 ? audio.rows_per_window : joined(rows, audio.pooled_rows),
          .marker = marker};
}

std::vector<MediaMarker> markers_of(const EncodedText& text, const MediaModules& modules) {
  return markers_of(text_lengths(text), modules);
}

ModuleMedia no_pictures(ModuleId module, const VisionInput& vision) {
  return {module, {}, vision.columns(), vision.temporal_patch_size};
}

SampleShape shape_of(const DecodedSample& sample, const DataOptions& options,
                     const MediaModules& modules) {
  SampleShape shape;
  shape.position = sample.position;
  shape.id = sample.id;
  for (std::size_t encoder = 0; encoder < sample.images.size(); ++encoder) {
    ModuleMedia media = no_pictures(modules.vision[encoder], options.vision[encoder].input);
    for (const auto& image : sample.images[encoder])
      media.items.push_back(image_shape(image.grid_height, image.grid_width,
                                        options.vision[encoder].input,
                                        static_cast<std::int32_t>(media.items.size())));
    if (!media.items.empty()) shape.media.push_back(std::move(media));
  }
  for (std::size_t encoder = 0; encoder < sample.audio.size(); ++encoder) {
    ModuleMedia media{modules.audio[encoder], {}, options.audio[encoder].input.mel_bins};
    for (const auto& window : sample.audio[encoder])
      media.items.push_back(
          audio_shape(window.frames, options.audio[encoder].input, window.marker));
    if (!media.items.empty()) shape.media.push_back(std::move(media));
  }
  std::sort(shape.media.begin(), shape.media.end(),
            [](const ModuleMedia& a, const ModuleMedia& b) { return a.module < b.module; });
  shape.llm_tokens = sample.llm_tokens;
  shape.trained_tokens = sample.trained_tokens;
  shape.markers = markers_of(sample.text, modules);
  return shape;
}

}  // namespace troupe::data
