// Reads and writes tensors in safetensors files.
//
// For final models, checkpoints and gradient dumps. Owns no tensors after a call returns: what is
// read is freshly allocated on the CPU. A reader belongs to one thread; different readers and
// writers are independent. Exceptions of LibTorch end here as errors.

#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "runtime/state/file_digest.hpp"
#include "runtime/state/safetensors_header.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::state {

/// Tensors by name, in the order of their names.
using TensorMap = std::map<std::string, at::Tensor>;

/// An open file whose header was read and checked; tensors are read one by one on request.
///
/// Reads copy instead of mapping: a file that shrinks under its reader is then an error, not a
/// signal, and unaligned data sections need no special case.
class SafetensorsReader {
 public:
  /// Errors:
  /// - not_found: no such file.
  /// - io_failed: it cannot be opened or read.
  /// - bad_data: not a safetensors file, or an invalid header (see parse_tensor_index).
  static Result<SafetensorsReader> open(const std::filesystem::path& path);

  SafetensorsReader(SafetensorsReader&& other) noexcept;
  SafetensorsReader& operator=(SafetensorsReader&&) = delete;
  ~SafetensorsReader();

  const TensorIndex& index() const { return index_; }

  /// True if the file holds a tensor of this name.
  bool contains(std::string_view name) const { return find(name) != nullptr; }

  /// One tensor, contiguous, on the CPU, in the file's type.
  ///
  /// Errors:
  /// - not_found: no tensor of this name; the fix names the nearest one.
  /// - io_failed: reading failed, or memory for it could not be had.
  Result<at::Tensor> read(const std::string& name) const;

  /// Every tensor. Errors: as `read`.
  Result<TensorMap> read_all() const;

 private:
  SafetensorsReader() = default;
  const TensorEntry* find(std::string_view name) const;

  std::filesystem::path path_;
  int file_ = -1;
  std::int64_t data_begin_ = 0;
  TensorIndex index_;
};

/// Opens, reads everything, closes. Errors: as SafetensorsReader.
Result<TensorMap> read_safetensors(const std::filesystem::path& path);

/// Writes all tensors to `path`, replacing it at once or not at all: a temporary file beside it is
/// written, flushed to disk and renamed. Creates missing folders. Tensors may be strided or on any
/// device; the largest element size comes first, then names ascend, so that every tensor is
/// aligned. `metadata` is written as given, plus `format: pt`, which Python's loaders ask for.
///
/// `digest`: takes the file's bytes, on another thread while they are written.
///
/// Errors:
/// - invalid_argument: an undefined tensor, a type the format lacks, or the name `__metadata__`.
/// - io_failed: the folder or file cannot be written; the text of the system's error.
Status write_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                         const std::map<std::string, std::string>& metadata = {},
                         Sha256* digest = nullptr);

}  // namespace troupe::state
