// SHA-256 of a file, in the spelling of `sha256sum`.
//
// Reads the file; thread-safe.

#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/vocabulary/result.hpp"

namespace troupe::state {

/// A digest that grows with what is added.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void add(const void* bytes, std::size_t count);
  /// Of all that was added; nothing may be added after it. 64 hexadecimal digits, lower case.
  std::string text();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// 64 hexadecimal digits, lower case. Cost: linear; about 2 GB/s where the processor has the
/// instructions. Errors: io_failed, with the system's text.
Result<std::string> sha256_of_file(const std::filesystem::path& path);

/// The same of bytes in memory.
std::string sha256_of(std::string_view bytes);

}  // namespace troupe::state
