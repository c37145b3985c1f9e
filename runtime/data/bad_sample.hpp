// A sample that cannot be trained: which, why, and the file that lists them.

#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "runtime/vocabulary/result.hpp"

namespace troupe::data {

/// Coarse reason, for counting.
enum class BadKind : std::uint8_t {
  malformed_record,  ///< The JSON object is not a conversation with media.
  marker_mismatch,   ///< Markers in the text and files differ in number.
  no_encoder,        ///< The model has no module for this kind of media.
  no_trained_token,  ///< No assistant text.
  missing_file,      ///< A media file is not there.
  unreadable_media,  ///< Empty, truncated, of an unknown format, too large, too short ...
  too_long,          ///< More llm tokens than max_seq_len.
};

/// `missing file`, `marker mismatch` ...
std::string_view to_string(BadKind kind);

/// Why a sample is dropped. It is never replaced by another one.
struct BadSample {
  std::string id;
  BadKind kind = BadKind::malformed_record;
  std::string file;    ///< The media file at fault; empty where the record itself is.
  std::string where;   ///< `file:line` of the record.
  std::string reason;  ///< One sentence.

  friend bool operator==(const BadSample&, const BadSample&) = default;
};

/// One line for logs: `sample ID (where): reason`, with the file where there is one.
std::string to_string(const BadSample& bad);

/// One JSON object without line break: id, kind, file, where, reason, epoch, position.
/// Bytes that are not UTF-8 appear as U+FFFD.
std::string to_json_line(const BadSample& bad, std::int64_t epoch, std::int64_t position);

/// The run's `bad_samples.jsonl`. One owner; not thread-safe. Every line is flushed.
class BadSampleLog {
 public:
  /// Opens for appending; makes missing folders.
  /// Errors: io_failed, with the path.
  static Result<BadSampleLog> open(const std::filesystem::path& path);

  /// Appends one line. Errors: io_failed (disk full, for example).
  Status add(const BadSample& bad, std::int64_t epoch, std::int64_t position);

  /// Lines written by this object.
  std::int64_t count() const { return count_; }

 private:
  std::filesystem::path path_;
  std::ofstream file_;
  std::int64_t count_ = 0;
};

}  // namespace troupe::data
