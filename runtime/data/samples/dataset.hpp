// The records of a job's sources, numbered 0..size()-1, and how to find their media.
//
// Immutable after opening, hence safe to share between threads. Holds text, never media.

#pragma once

#include <algorithm>
#include <filesystem>
#include <span>
#include <vector>

#include "runtime/data/formats/record.hpp"
#include "runtime/data/reading/options.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::data {
/// Records of all sources, in order.
class Dataset {
 public:
  /// Reads every source that is here, in order. Cost: O(bytes); memory is about that of the files'
  /// text.
  ///
  /// Of LLaVA's format, other ones are those of plug-ins (formats/registry.hpp): a
  /// file is a JSON array of objects or one object per line (JSONL; empty lines are skipped); the
  /// first character that is not white space decides. Fields of an object: `conversations` (list of
  /// {`from`, `value`}; a system turn only first), `image` and `audio` (a path or a list of paths;
  /// absent, null or an empty list: none), `id` (string or whole number; absent: made from file and
  /// place). Unknown fields are ignored, but not those that name media as other formats do
  /// (`images`, `video`), unless they are empty. An object that breaks these rules becomes a record
  /// with a `defect`, so that one bad line costs one sample.
  ///
  /// Errors:
  /// - invalid_argument: no source, an unknown format, or what `check(options)` says.
  /// - not_found: a JSON file is missing, or a media folder that records need.
  /// - io_failed: a file cannot be read.
  /// - bad_data: not JSON (with line and column), no array or objects in it, no records at all,
  /// what
  ///   an added format says, or an id used twice (names both places; at most the first five are
  ///   listed).
  static Result<Dataset> open(const DataOptions& options);
  /// Records.
  std::int64_t size() const { return static_cast<std::int64_t>(records_.size()); }
  const Record& operator[](std::int64_t index) const {
    return records_[static_cast<std::size_t>(index)];
  }
  const std::vector<Record>& records() const { return records_; }  ///< All of them.
  /// How many of them each source has, in order of the sources; 0 of one that is not here.
  std::vector<std::int64_t> source_counts() const;
  /// Whether this process sees a source of the options (`DataSource::is_here`).
  bool is_here(std::size_t source) const { return is_here_[source]; }
  /// Whether it sees all of them.
  bool is_whole() const {
    return std::find(is_here_.begin(), is_here_.end(), false) == is_here_.end();
  }
  /// The record of this number where each source has `counts` of them, also those that are not
  /// here; null: it is of one of these, or there is none.
  const Record* find(std::int64_t index, std::span<const std::int64_t> counts) const;

  /// Where a media file of this record lies: `name` below its source's media folder.
  std::filesystem::path media_path(const Record& record, const std::string& name) const;

 private:
  std::vector<Record> records_;
  // Per source.
  std::vector<std::filesystem::path> media_folders_;
  std::vector<std::int64_t> begins_;  // Number of its first record.
  std::vector<bool> is_here_;
};

}  // namespace troupe::data
