#include "runtime/data/samples/sample_lengths.hpp"

#include <limits>
#include <string>

#include "runtime/data/reading/log_mel.hpp"
#include "runtime/data/reading/read_audio.hpp"
#include "runtime/data/samples/measure_sample.hpp"

namespace troupe::data {
namespace {

using Numbers = std::vector<std::int64_t>;

/// Width and height; none: these numbers are no picture's.
std::optional<ImageSize> size_of(const Numbers& numbers) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
  if (numbers.size() != 2) return std::nullopt;
  for (const std::int64_t side : numbers)
    if (side < 1 || side > kMax) return std::nullopt;
  return ImageSize{static_cast<std::int32_t>(numbers[0]), static_cast<std::int32_t>(numbers[1])};
}

bool is_equal(const Numbers& known, const Numbers& found) { return known == found; }

/// A resampler may make a sample more or less than a header lets expect: frames are what counts.
bool has_same_frames(const Numbers& known, const Numbers& found) {
  return known.size() == 1 && known[0] / kHopSamples == found[0] / kHopSamples;
}

std::string text_of(const Numbers& numbers) {
  std::string text;
  for (const std::int64_t number : numbers)
    text += (text.empty() ? "" : " x ") + std::to_string(number);
  return text;
}

}  // namespace

std::optional<LengthKey> SampleLengths::file_key(const char* kind,
                                                 const std::filesystem::path& path,
                                                 std::int64_t limit) const {
  if (index_ == nullptr) return std::nullopt;
  const auto stamp = stamp_of(path);
  if (!stamp || !is_settled(*stamp, index_->settled_after())) return std::nullopt;
  KeyText text(kind);
  text.add(path.string());
  for (const std::int64_t number : {stamp->bytes, stamp->modified_ns, stamp->changed_ns, limit})
    text.add(number);
  return text.key();
}

std::optional<LengthKey> SampleLengths::before_image(const std::filesystem::path& path,
                                                     std::int64_t pixels_max) const {
  return file_key("image", path, pixels_max);
}

std::optional<LengthKey> SampleLengths::before_clip(const std::filesystem::path& path,
                                                    std::int32_t seconds_max) const {
  static const std::string kind = "samples at " + std::to_string(kSampleRate) + " Hz";
  return file_key(kind.c_str(), path, seconds_max);
}

std::optional<Numbers> SampleLengths::look_up(const std::optional<LengthKey>& key) const {
  if (index_ == nullptr || !key) return std::nullopt;
  return index_->find(source_, *key);
}

TextLengths SampleLengths::text(const Record& record) {
  const auto key = index_ != nullptr ? key_of(record.turns) : std::nullopt;
  if (const auto numbers = look_up(key))
    if (auto known = text_lengths_of(*numbers)) return std::move(*known);
  has_read_ = true;
  auto read = text_lengths(encode_text(record.turns));
  if (key) index_->put(source_, *key, to_numbers(read));
  return read;
}

Result<ImageSize> SampleLengths::image(const std::filesystem::path& path, std::int64_t pixels_max) {
  const auto key = before_image(path, pixels_max);
  if (const auto numbers = look_up(key))
    if (const auto known = size_of(*numbers)) return *known;
  has_read_ = true;
  auto read = image_size(path, pixels_max);
  if (key && read.ok())
    index_->put(source_, *key, Numbers{read.value().width, read.value().height});
  return read;
}

Result<std::int64_t> SampleLengths::clip(const std::filesystem::path& path,
                                         std::int32_t seconds_max) {
  const auto key = before_clip(path, seconds_max);
  if (const auto numbers = look_up(key); numbers && numbers->size() == 1) return numbers->front();
  has_read_ = true;
  auto read = audio_samples(path, seconds_max);
  if (key && read.ok()) index_->put(source_, *key, Numbers{read.value()});
  return read;
}

void SampleLengths::found(const std::optional<LengthKey>& key, const Numbers& numbers,
                          const std::string& name,
                          bool (*is_same)(const Numbers&, const Numbers&)) {
  if (index_ == nullptr || !key) return;
  const auto known = index_->find(source_, *key);
  if (!known) return index_->put(source_, *key, numbers);
  if (!is_same(*known, numbers))
    index_->correct(source_, *key, numbers,
                    name + " has " + text_of(numbers) + ", not " + text_of(*known));
}

void SampleLengths::found_text(const Record& record, const EncodedText& text) {
  if (index_ != nullptr)
    found(key_of(record.turns), to_numbers(text_lengths(text)), "the text of sample " + record.id,
          is_equal);
}

void SampleLengths::found_image(const std::optional<LengthKey>& before,
                                const std::filesystem::path& path, ImageSize size) {
  found(before, {size.width, size.height}, path.string(), is_equal);
}

void SampleLengths::found_clip(const std::optional<LengthKey>& before,
                               const std::filesystem::path& path, std::int64_t samples) {
  found(before, {samples}, path.string(), has_same_frames);
}

}  // namespace troupe::data
