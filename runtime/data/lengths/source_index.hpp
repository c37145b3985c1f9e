// The kept lengths of one source of samples: immutable files in a folder that several processes
// read and add to, and what this process has found since.
//
// A file is written beside its place and renamed into it, under a name that nobody else takes:
// there is no lock, and none is needed on network file systems. A new file takes in those that are
// no larger than all that is newer, so that there are at most about as many as the number of
// entries has binary digits, and each entry is written about as often. Newer files come first.
//
// Thread-safe, but for `refresh` and `save`: one thread at a time.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <shared_mutex>
#include <string>
#include <vector>

#include "runtime/data/lengths/index_segment.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::data {

class SourceIndex {
 public:
  /// Of files called `NAME-...` below a folder, which may be missing until something is saved.
  /// `bytes_max`: of all of them, and of what is not saved yet.
  SourceIndex(std::filesystem::path folder, std::string name, std::size_t bytes_max);

  /// The value that was put last, here or in a file that is known here.
  std::optional<std::string> find(const LengthKey& key) const;

  /// Nothing where there is no room for it.
  void put(const LengthKey& key, std::string value);

  bool has_unsaved() const;

  /// Takes up files that others have added, and lets go of those that are gone. A damaged one is
  /// removed; `notes` says so, once per file.
  void refresh(std::vector<std::string>& notes);

  /// Refreshes and brings what was put to disk, if anything. Returns whether it wrote.
  /// Errors: io_failed: it cannot be written; it is kept here and tried again by the next call.
  Result<bool> save(std::vector<std::string>& notes);

  /// Whether a file of this name belongs to this source.
  bool owns(const std::string& file_name) const;

 private:
  struct Segment {
    std::filesystem::path path;
    IndexSegment entries;
    /// Per entry whether it was found since it is known here.
    std::unique_ptr<std::atomic<bool>[]> used;
  };
  using SegmentPointer = std::shared_ptr<const Segment>;
  struct Candidate {
    IndexEntry entry;
    bool used = false;
  };

  std::vector<std::filesystem::path> listed(std::vector<std::string>& notes);
  Result<SegmentPointer> read(const std::filesystem::path& path);
  /// The newest ones, as many as a file of what is being saved takes in; oldest first.
  std::vector<SegmentPointer> small_ones() const;
  std::vector<Candidate> merged(const std::vector<SegmentPointer>& taken) const;
  std::size_t file_bytes() const;
  Result<SegmentPointer> write(std::span<const Candidate> candidates);

  const std::filesystem::path folder_;
  const std::string name_;
  const std::size_t bytes_max_;
  std::set<std::filesystem::path> refused_;  ///< Told of.

  mutable std::shared_mutex mutex_;  ///< Guards all below; files are read and written without it.
  std::vector<SegmentPointer> segments_;      ///< Oldest first.
  std::map<LengthKey, std::string> unsaved_;  ///< Newer than all of them.
  std::map<LengthKey, std::string> saving_;   ///< Being written: between the two.
  std::size_t unsaved_bytes_ = 0;             ///< Of `unsaved_`, as they will be in a file.
};

/// What files of indexes end with.
inline constexpr const char* kIndexSuffix = ".lengths";

}  // namespace troupe::data
