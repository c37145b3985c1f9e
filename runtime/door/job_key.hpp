// What the processes of a job share and nobody else has: whoever shows it is let in.

#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/vocabulary/result.hpp"

namespace troupe::door {

inline constexpr std::size_t kKeyBytes = 32;

/// 32 random bytes; as text 64 hexadecimal digits.
class JobKey {
 public:
  /// A new one from the system's random source.
  static JobKey random();

  /// Spaces around it do not count. Errors: invalid_argument: not 64 hexadecimal digits; the text
  /// itself is not told, because it may be a key with a slip.
  static Result<JobKey> parse(std::string_view text, const std::string& where);

  std::string text() const;
  std::span<const std::uint8_t, kKeyBytes> bytes() const { return bytes_; }

  friend bool operator==(const JobKey&, const JobKey&) = default;

 private:
  std::array<std::uint8_t, kKeyBytes> bytes_{};
};

/// Writes a key into a file that only its owner may read (mode 600).
/// Errors: invalid_argument: the file exists, and may be the key of a job; io_failed.
Status write_key(const std::filesystem::path& file, const JobKey& key);

/// Errors: not_found; io_failed; invalid_argument: not a key, or group or others may read the file.
Result<JobKey> read_key(const std::filesystem::path& file);

/// The key in the environment variable TROUPE_KEY; none where it is not set or empty.
/// Errors: invalid_argument: it holds no key.
Result<std::optional<JobKey>> key_of_environment();

}  // namespace troupe::door
