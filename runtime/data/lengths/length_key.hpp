// What a kept length is found by: a digest of everything that it depends on. What changes has
// another key, so that nothing old is ever found for it.
//
// Pure, apart from asking the file system in `stamp_of`; thread-safe.

#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::data {

/// SHA-256, by OpenSSL. None: the library refuses it.
std::optional<std::array<unsigned char, 32>> sha256(std::string_view bytes);

/// The first half of a digest: among 2^32 keys two are alike with a chance of one in 2^65.
using LengthKey = std::array<unsigned char, 16>;

/// What a key is made from, field by field. Fields have their sizes before them: those of two
/// different lists never give the same text.
class KeyText {
 public:
  /// `kind`: what the length is of.
  explicit KeyText(std::string_view kind) { add(kind); }

  void add(std::string_view field);
  void add(std::int64_t number);

  /// None: it cannot be computed, and nothing is looked up or kept.
  std::optional<LengthKey> key() const;

 private:
  std::string text_;
};

/// What tells one state of a file from another one without reading it.
struct FileStamp {
  std::int64_t bytes = 0;
  std::int64_t modified_ns = 0;  ///< As programs may set it.
  std::int64_t changed_ns =
      0;  ///< As the file system sets it, at each change: nobody sets it back.

  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

/// Links are followed. None: there is no such regular file, or it cannot be told. REQUIRES: the
/// calling thread has no `files::ReadingFile`.
std::optional<FileStamp> stamp_of(const std::filesystem::path& path);

/// Whether a further change of the file would give it another stamp: file systems count time in
/// steps of up to two seconds. One whose time lies ahead is not settled.
bool is_settled(const FileStamp& stamp, std::chrono::nanoseconds after);

}  // namespace troupe::data
