#include "runtime/data/samples/measure_sample.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "runtime/data/reading/log_mel.hpp"
#include "runtime/data/reading/read_audio.hpp"
#include "runtime/data/reading/read_image.hpp"
#include "runtime/data/samples/sample_lengths.hpp"
#include "runtime/data/samples/text_lengths.hpp"

namespace troupe::data {
namespace {

Error bad_data(std::string message) { return {Errc::bad_data, std::move(message), "", ""}; }

// What stands before the picture is rarely more; where it is, the whole file is read.
constexpr std::uintmax_t kHeaderBytes = 64 << 10;

// The header chunk comes first: length, "IHDR", width, height, big-endian.
Result<ImageSize> png_size(std::string_view bytes) {
  if (bytes.size() < 24 || bytes.substr(12, 4) != "IHDR")
    return bad_data("the PNG file has no header");
  const auto number = [&](std::size_t at) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < 4; ++i)
      value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
    return static_cast<std::int32_t>(value & 0x7FFFFFFF);
  };
  return ImageSize{number(16), number(20)};
}

Result<ImageSize> announced_size(std::string_view bytes) {
  return is_jpeg(bytes) ? jpeg_size(bytes) : png_size(bytes);
}

std::optional<BadSample> measure_images(const Dataset& dataset, const Record& record,
                                        const DataOptions& options, SampleLengths& lengths,
                                        std::vector<ModuleMedia>& media) {
  for (const auto& name : record.images) {
    const auto size = lengths.image(dataset.media_path(record, name), options.decoded_pixels_max);
    if (!size) return bad_media(record, name, size.error());
    for (std::size_t encoder = 0; encoder < media.size(); ++encoder) {
      const VisionInput& vision = options.vision[encoder].input;
      const auto fit = fit_image(size.value(), vision, options.min_pixels, options.max_pixels);
      if (!fit) return bad_media(record, name, fit.error());
      const ImageSize cut = fit.value().kept.size;
      auto& items = media[encoder].items;
      items.push_back(image_shape(vision.patches_along(cut.height), vision.patches_along(cut.width),
                                  vision, static_cast<std::int32_t>(items.size())));
    }
  }
  return std::nullopt;
}

// As `log_mel_windows` cuts a clip.
std::optional<BadSample> measure_clips(const Dataset& dataset, const Record& record,
                                       const DataOptions& options, SampleLengths& lengths,
                                       std::vector<ModuleMedia>& media) {
  std::int32_t marker = 0;
  for (const auto& name : record.audio) {
    const auto samples = lengths.clip(dataset.media_path(record, name), options.audio_seconds_max);
    if (!samples) return bad_media(record, name, samples.error());
    if (samples.value() < kHopSamples)
      return bad_media(record, name, bad_data("the clip is shorter than one frame of 10 ms"));
    for (std::int64_t left = samples.value(); left >= kHopSamples; left -= kWindowSamples) {
      const auto window =
          options.pad_audio ? kWindowSamples : std::min<std::int64_t>(left, kWindowSamples);
      for (std::size_t encoder = 0; encoder < media.size(); ++encoder)
        media[encoder].items.push_back(audio_shape(static_cast<std::int32_t>(window / kHopSamples),
                                                   options.audio[encoder].input, marker));
    }
    ++marker;
  }
  return std::nullopt;
}

MeasureOutcome measure(const Dataset& dataset, const Record& record, const DataOptions& options,
                       const MediaModules& modules, SampleLengths& lengths) {
  const auto text = lengths.text(record);
  if (auto fault = find_text_fault(record, text, options)) return *fault;
  std::vector<ModuleMedia> images, clips;
  for (std::size_t e = 0; e < modules.vision.size(); ++e)
    images.push_back(no_pictures(modules.vision[e], options.vision[e].input));
  for (std::size_t e = 0; e < modules.audio.size(); ++e)
    clips.push_back({modules.audio[e], {}, options.audio[e].input.mel_bins});
  if (auto fault = measure_images(dataset, record, options, lengths, images)) return *fault;
  if (auto fault = measure_clips(dataset, record, options, lengths, clips)) return *fault;

  SampleShape shape;
  shape.id = record.id;
  shape.trained_tokens = text.trained_tokens;
  shape.llm_tokens = text.tokens;
  shape.markers = markers_of(text, modules);
  for (auto* medium : {&images, &clips})
    for (auto& media : *medium) {
      if (media.items.empty()) continue;
      for (const auto& item : media.items) shape.llm_tokens += item.output_rows;
      shape.media.push_back(std::move(media));
    }
  std::sort(shape.media.begin(), shape.media.end(),
            [](const ModuleMedia& a, const ModuleMedia& b) { return a.module < b.module; });
  if (options.max_seq_len > 0 && shape.llm_tokens > options.max_seq_len)
    return too_long(record.id, record.where, shape.llm_tokens, options.max_seq_len);
  return shape;
}

}  // namespace

MeasureOutcome measure_sample(const Dataset& dataset, const Record& record,
                              const DataOptions& options, const MediaModules& modules,
                              SampleLengths& lengths) {
  try {
    return measure(dataset, record, options, modules, lengths);
  } catch (const std::exception& fault) {  // Out of memory; a path the file system cannot hold.
    return bad_media(record, {}, {Errc::internal, fault.what(), {}, {}});
  }
}

MeasureOutcome measure_sample(const Dataset& dataset, const Record& record,
                              const DataOptions& options, const MediaModules& modules) {
  SampleLengths read(nullptr, record.source);
  return measure_sample(dataset, record, options, modules, read);
}

Result<ImageSize> image_size(const std::filesystem::path& path, std::int64_t pixels_max) {
  auto bytes = read_image_file(path, pixels_max, kHeaderBytes);
  if (!bytes) return bytes.error();
  auto size = announced_size(bytes.value());
  if (!size && bytes.value().size() == kHeaderBytes) {
    bytes = read_image_file(path, pixels_max);
    if (!bytes) return bytes.error();
    size = announced_size(bytes.value());
  }
  if (!size) return size;
  if (auto fine = check_image_size(size.value().width, size.value().height, pixels_max); !fine)
    return fine.error();
  return size;
}

}  // namespace troupe::data
