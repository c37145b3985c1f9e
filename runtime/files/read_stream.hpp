// An `std::ifstream` that says what it waits for, for files that are read by line or by character.
//
// One thread at a time. It throws where `std::ifstream` would.

#pragma once

#include <filesystem>
#include <fstream>
#include <istream>
#include <optional>
#include <string>

namespace troupe::files {

/// Binary. Opening and each block that is read are a `ReadingFile` of their own, so that a large
/// file is not one that hangs. REQUIRES: its thread has no other `ReadingFile` while it reads.
class ReadStream : public std::istream {
 public:
  /// Fails, as a stream does, where the file cannot be opened.
  explicit ReadStream(const std::filesystem::path& file);

 private:
  class Blocks : public std::filebuf {
   public:
    explicit Blocks(const std::filesystem::path& file);

   protected:
    int_type underflow() override;
    /// By blocks too: the base would read all of it in one wait.
    std::streamsize xsgetn(char* to, std::streamsize count) override;

   private:
    std::filesystem::path file_;
  };

  Blocks blocks_;
};

/// All of a file; none where it cannot be opened. REQUIRES: as `ReadStream`.
std::optional<std::string> read_whole(const std::filesystem::path& file);

}  // namespace troupe::files
