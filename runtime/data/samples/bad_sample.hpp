// A sample that cannot be trained: which, why, what to do, and its line in `bad_samples.jsonl`.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/data/formats/record.hpp"
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

/// What to do about one, where nothing better is known.
std::string_view fix_of(BadKind kind);

/// Why a sample is dropped. It is never replaced by another one.
struct BadSample {
  std::string id;
  BadKind kind = BadKind::malformed_record;
  std::string file;    ///< The media file at fault; empty where the record itself is.
  std::string where;   ///< `file:line` of the record.
  std::string reason;  ///< One sentence.
  std::string fix;     ///< What to do about it.

  friend bool operator==(const BadSample&, const BadSample&) = default;
};

/// A media file of a record that cannot be used, and why.
BadSample bad_media(const Record& record, std::string file, Error why);

/// A sample of more llm tokens than `data.max_seq_len`.
BadSample too_long(std::string id, std::string where, std::int64_t tokens, std::int64_t limit);

/// One line for logs: `sample ID (where): file: reason; fix`, without what is empty.
std::string to_string(const BadSample& bad);

/// One JSON object without line break: id, kind, file, where, reason, fix, epoch, position.
/// Bytes that are not UTF-8 appear as U+FFFD.
std::string to_json_line(const BadSample& bad, std::int64_t epoch, std::int64_t position);

}  // namespace troupe::data
