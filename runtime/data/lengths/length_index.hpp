// Lengths of samples that were read once, kept in a folder: an epoch, a job or a plan on the same
// data reads none of them again.
//
// A cache and no more: whoever asks measures what is not found, so that a folder that is missing,
// damaged, read-only or shared costs time and never a result. What is found was measured from the
// same bytes by the same rules: both are in the key (length_key.hpp). Thread-safe; any number of
// processes may use one folder.

#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/lengths/length_key.hpp"

namespace troupe::data {

class SourceIndex;

/// Where lengths are kept, and how many.
struct LengthIndexOptions {
  std::filesystem::path folder;  ///< Made by the first save.
  /// Of one source; some eight million lengths. Beyond it those go that this process has not used.
  std::size_t source_bytes_max = std::size_t{256} << 20;
  /// Of all sources of the folder: those go whose files were written longest ago.
  std::size_t folder_bytes_max = std::size_t{1} << 30;
  /// A file that was changed less long ago is measured and not kept (`is_settled`).
  std::chrono::milliseconds settled_after{2000};
};

class LengthIndex {
 public:
  /// Reads what is kept of these sources. `names`: what each is known by, in the order of the job's
  /// sources; an empty one is not here, and has no lengths. Never fails: see `take_notes`.
  LengthIndex(LengthIndexOptions options, std::span<const std::string> names);
  LengthIndex(const LengthIndex&) = delete;
  LengthIndex& operator=(const LengthIndex&) = delete;
  ~LengthIndex();  ///< What was not saved is lost: a command that is refused writes nothing.

  /// The numbers that are kept for a key of a source. REQUIRES here and below: there is the source.
  std::optional<std::vector<std::int64_t>> find(std::int32_t source, const LengthKey& key) const;

  /// Keeps numbers in the place of those that are. REQUIRES: none is negative.
  void put(std::int32_t source, const LengthKey& key, std::span<const std::int64_t> numbers);

  /// The same, of what proved other than what was found; the first time that is a note, with `what`
  /// (a clause).
  void correct(std::int32_t source, const LengthKey& key, std::span<const std::int64_t> numbers,
               const std::string& what);

  std::chrono::milliseconds settled_after() const { return options_.settled_after; }

  /// Writes what was put since the last time, and takes up what other processes wrote.
  void save();

  /// The same where it is due: after 10 s, later after up to two minutes; what others wrote is
  /// looked at sooner where something was not found. For threads that may wait for a disk. At once
  /// where it is not, or while another thread does.
  void maintain();

  /// What users should know and have not been told: lengths that were damaged, or cannot be kept.
  std::vector<std::string> take_notes();

 private:
  using Clock = std::chrono::steady_clock;

  void save_all();
  void refresh_all();
  /// Brings the folder below its bound; the sources of this index stay.
  void trim() const;
  void tell(std::vector<std::string> notes);

  const LengthIndexOptions options_;
  std::vector<std::unique_ptr<SourceIndex>> sources_;  ///< Null: not here.
  mutable std::atomic<std::int64_t> missed_ = 0;       ///< Not found since others were looked at.

  std::mutex saving_;  ///< Held while files are read or written; guards what follows.
  Clock::time_point saved_, refreshed_;
  std::chrono::seconds interval_;

  std::mutex telling_;  ///< Guards what follows.
  std::vector<std::string> notes_;
  bool told_unwritten_ = false;
  bool told_corrected_ = false;
};

}  // namespace troupe::data
