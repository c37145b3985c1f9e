// One file of an index of lengths: keys with their values, sorted, and a digest that shows damage.
//
// Layout, numbers in the byte order of the machine (another one's is taken for damage): "troupeL1",
// SHA-256 of all that follows, entries (8 bytes), bytes of values (8); per entry its key (16) and
// where its value begins (4), ascending by key; the values, in the same order.
//
// Pure; immutable once made, hence safe to share between threads.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/lengths/length_key.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::data {

/// Numbers as a value: seven bits to a byte, the lowest first. REQUIRES: none is negative.
std::string pack(std::span<const std::int64_t> numbers);
/// None: these bytes are no such numbers.
std::optional<std::vector<std::int64_t>> unpack(std::string_view value);

/// A key with its value, which lies elsewhere.
struct IndexEntry {
  LengthKey key{};
  std::string_view value;

  /// What it takes in a file.
  std::size_t bytes() const { return key.size() + sizeof(std::uint32_t) + value.size(); }
};

class IndexSegment {
 public:
  /// Errors: bad_data: it is cut short, is no such file, or is not what was written; the message is
  /// a clause.
  static Result<IndexSegment> parse(std::string bytes);

  std::size_t size() const { return count_; }          ///< Entries.
  std::size_t bytes() const { return bytes_.size(); }  ///< Of the file.
  IndexEntry operator[](std::size_t entry) const;      ///< REQUIRES: entry < size().
  /// The entry with this key. Cost: logarithmic.
  std::optional<std::size_t> find(const LengthKey& key) const;

 private:
  std::uint32_t begin_of(std::size_t entry) const;

  std::string bytes_;
  std::size_t count_ = 0;
};

/// The bytes of a file. REQUIRES: keys ascend strictly; values take less than 4 GiB.
/// Errors: internal: no digest can be computed.
Result<std::string> segment_of(std::span<const IndexEntry> entries);

}  // namespace troupe::data
