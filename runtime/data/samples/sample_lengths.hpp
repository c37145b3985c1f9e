// The lengths of one sample's text and media: from an index where it knows them, else from the
// record and the headers of the files.
//
// One thread at a time; the index may be shared.

#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "runtime/data/formats/record.hpp"
#include "runtime/data/lengths/length_index.hpp"
#include "runtime/data/reading/options.hpp"
#include "runtime/data/reading/resize_image.hpp"
#include "runtime/data/samples/text_lengths.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::data {

class SampleLengths {
 public:
  /// Of a sample of this source. `index`: outlives this; null: everything is read.
  SampleLengths(LengthIndex* index, std::int32_t source) : index_(index), source_(source) {}

  TextLengths text(const Record& record);
  /// Errors: as `image_size` and `audio_samples`. Faults are not kept.
  Result<ImageSize> image(const std::filesystem::path& path, std::int64_t pixels_max);
  Result<std::int64_t> clip(const std::filesystem::path& path, std::int32_t seconds_max);

  /// Whether all that was asked so far was in the index.
  bool was_indexed() const { return index_ != nullptr && !has_read_; }

  /// A file that is about to be decoded, as the index knows it before it is opened: what is found
  /// in it then belongs to no later state of it. None: nothing is to be told of it.
  std::optional<LengthKey> before_image(const std::filesystem::path& path,
                                        std::int64_t pixels_max) const;
  std::optional<LengthKey> before_clip(const std::filesystem::path& path,
                                       std::int32_t seconds_max) const;

  /// What decoding found: kept where the index knows nothing, or something else. `path`: for notes.
  void found_text(const Record& record, const EncodedText& text);
  void found_image(const std::optional<LengthKey>& before, const std::filesystem::path& path,
                   ImageSize size);
  void found_clip(const std::optional<LengthKey>& before, const std::filesystem::path& path,
                  std::int64_t samples);

 private:
  std::optional<LengthKey> file_key(const char* kind, const std::filesystem::path& path,
                                    std::int64_t limit) const;
  std::optional<std::vector<std::int64_t>> look_up(const std::optional<LengthKey>& key) const;
  /// `is_same`: what is known needs no correction.
  void found(const std::optional<LengthKey>& key, const std::vector<std::int64_t>& numbers,
             const std::string& name,
             bool (*is_same)(const std::vector<std::int64_t>&, const std::vector<std::int64_t>&));

  LengthIndex* index_;
  std::int32_t source_;
  bool has_read_ = false;
};

}  // namespace troupe::data
