// Values of parameters by name, wherever they were saved: a checkpoint, a run's final model, any
// safetensors file with our names. For jobs that begin with some of another job's weights.
//
// Reads files. A reader belongs to one thread.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/state/checkpoint.hpp"
#include "runtime/state/safetensors.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::state {

/// What a user may name, as what is read: of a run its final model, or its newest whole checkpoint
/// where it has not come to its end (of those in `checkpoints`); a checkpoint or a file is itself.
///
/// Errors: not_found: none of these is there. bad_data: a checkpoint is damaged, or a
/// part of one is all that there is.
Result<std::filesystem::path> find_saved_values(const std::filesystem::path& named,
                                                const std::filesystem::path& checkpoints);

class SavedValues {
 public:
  /// `path`: as `find_saved_values` gives it. Errors: as `Checkpoint::open` and
  /// `SafetensorsReader::open`.
  static Result<SavedValues> open(const std::filesystem::path& path);

  /// Shapes by name.
  const std::map<std::string, std::vector<std::int64_t>>& shapes() const { return shapes_; }

  /// A whole parameter; the exact value where one was saved. Errors: as those who read.
  Result<at::Tensor> read(const std::string& name, at::ScalarType type) const;

 private:
  SavedValues() = default;

  std::map<std::string, std::vector<std::int64_t>> shapes_;
  std::unique_ptr<Checkpoint> checkpoint_;  ///< Or the file.
  std::unique_ptr<SafetensorsReader> file_;
};

}  // namespace troupe::state
