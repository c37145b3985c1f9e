// Which files this process is reading, or writing for a command that waits, so that what never
// returns (a network file system whose server is gone) can be told instead of waited for.
//
// Process-wide, as file systems are, and thread-safe. Whoever reads files of the data set,
// checkpoints or saved weights takes part; nobody here measures time.

#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace troupe::files {

enum class FileUse : std::uint8_t { read, write };

/// A file that a thread has begun to open, read, look up or write, and has not done with.
struct FileRead {
  std::int64_t number = 0;  ///< Counts reads from 1: two reads of one file are told apart.
  std::filesystem::path file;
  FileUse use = FileUse::read;

  friend bool operator==(const FileRead&, const FileRead&) = default;
};

/// Says for as long as it lives that its thread waits for a file. One at a time per thread: of two
/// the outer one would be the oldest however well the inner one gets on.
class ReadingFile {
 public:
  explicit ReadingFile(std::filesystem::path file, FileUse use = FileUse::read);
  ~ReadingFile();
  ReadingFile(const ReadingFile&) = delete;
  ReadingFile& operator=(const ReadingFile&) = delete;

  /// Some of the file was read: what is waited for from here on is another read, the youngest. For
  /// files that take long because they are large.
  void went_on();

 private:
  std::int64_t number_;
};

/// The read that began first of those that have not ended; none where no file is being read.
std::optional<FileRead> oldest_read();

}  // namespace troupe::files
