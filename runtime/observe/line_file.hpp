// A file of lines that survives a crash of its writer: metrics.jsonl, samples.jsonl and their kin.
//
// Owned by one thread. Every line is one write to a file opened for appending, so a killed process
// leaves whole lines, and a reader sees a line as soon as it was written. What a full disk does not
// take is kept, and written before what follows.

#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/vocabulary/result.hpp"

namespace troupe::observe {

class LineFile {
 public:
  enum class Mode : std::uint8_t {
    replace,  ///< Starts empty.
    resume    ///< Keeps what is there; a last line without its newline is cut off.
  };

  /// Opens or creates; creates missing folders.
  /// Errors: io_failed, with the system's text.
  static Result<LineFile> open(const std::filesystem::path& path, Mode mode);

  LineFile(LineFile&& other) noexcept;
  LineFile& operator=(LineFile&& other) noexcept;
  ~LineFile();

  /// Appends `line` and a newline. REQUIRES: no newline inside.
  /// Errors: io_failed; what was not written is tried again with the next call of any kind.
  Status write(std::string_view line);

  /// Brings what was written to disk. Errors: io_failed.
  Status sync();

  /// Bytes that were not taken so far.
  std::size_t unwritten() const { return unwritten_.size(); }

  const std::filesystem::path& path() const { return path_; }

 private:
  LineFile() = default;
  Status write_pending();

  std::filesystem::path path_;
  int file_ = -1;
  std::string unwritten_;
};

/// Replaces a whole small file at once: written beside it, flushed to disk, renamed.
/// Errors: io_failed, with the system's text.
Status write_whole_file(const std::filesystem::path& path, std::string_view text);

/// Puts a copy in the place of a file, as `write_whole_file` puts text there: whoever has the old
/// one open writes no file of that name any more. Nothing where there is none. Memory: a piece of
/// it, however long it is. Errors: io_failed, with the system's text; the old one is still there.
Status renew_file(const std::filesystem::path& path);

}  // namespace troupe::observe
