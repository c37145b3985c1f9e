// The header of a safetensors file: what tensors it holds and where, checked before use.
//
// For the reader, the writer and the fuzz tests. Pure: text in, values out; no torch, no files.
// Format: 8 bytes little-endian header length, JSON header, then the tensors' bytes end to end.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/vocabulary/result.hpp"

namespace troupe::state {

/// Longest JSON header that is read; the limit of the format's own library.
inline constexpr std::int64_t kHeaderBytesMax = 100'000'000;

/// Bytes before the JSON header.
inline constexpr std::int64_t kLengthBytes = 8;

/// Element types that are read and written.
enum class ElementType : std::uint8_t { f64, f32, f16, bf16, i64, i32, u8, boolean };

/// Name in the file: `F64`, `BF16`, `BOOL`.
std::string_view to_string(ElementType type);

/// Bytes of one element.
std::int64_t element_bytes(ElementType type);

/// One tensor of the file.
struct TensorEntry {
  std::string name;
  ElementType type = ElementType::f32;
  std::vector<std::int64_t> shape;  ///< Each >= 0; empty for a scalar.
  std::int64_t begin = 0;           ///< Byte offset from the end of the header.
  std::int64_t end = 0;

  std::int64_t bytes() const { return end - begin; }
  friend bool operator==(const TensorEntry&, const TensorEntry&) = default;
};

/// The whole header. Entries stand in the order of their bytes.
struct TensorIndex {
  std::vector<TensorEntry> entries;
  std::map<std::string, std::string> metadata;  ///< `__metadata__`.

  friend bool operator==(const TensorIndex&, const TensorIndex&) = default;
};

/// Parses the JSON header of a file whose data section holds `data_bytes` bytes.
///
/// Accepts exactly: unique names, known types, offsets that agree with type and shape and cover the
/// data section without a hole or an overlap. Cost: linear in the header, plus sorting.
///
/// Errors:
/// - bad_data: anything else; the message names the tensor, what was expected and what was found.
Result<TensorIndex> parse_tensor_index(std::string_view json, std::int64_t data_bytes);

/// The header for these entries, length field included, padded with spaces so that the data starts
/// at a multiple of 8. REQUIRES: offsets are contiguous from 0 in the order of `entries`.
std::string encode_tensor_index(const TensorIndex& index);

}  // namespace troupe::state
