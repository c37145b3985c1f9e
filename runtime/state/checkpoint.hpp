// Checkpoints on disk: finding them, proving them whole, reading pieces of state from them.
//
// A checkpoint is a folder `step-N` that got this name when it was complete; see README.md. A
// reader belongs to one thread; different ones are independent. Exceptions of LibTorch end here.

#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/state/checkpoint_manifest.hpp"
#include "runtime/state/safetensors.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::state {

inline constexpr const char* kManifestFile = "manifest.json";
/// The job file of the run that saved it, with every value.
inline constexpr const char* kCheckpointJobFile = "resolved.toml";

/// Longest manifest that is read.
inline constexpr std::int64_t kManifestBytesMax = 256'000'000;

/// The manifest of a checkpoint, or of an incomplete save. Errors: as `Checkpoint::open`.
Result<CheckpointManifest> read_manifest(const std::filesystem::path& folder);

class Checkpoint {
 public:
  /// Reads the manifest and looks at the files' sizes.
  ///
  /// Errors:
  /// - not_found: no such folder, or no manifest in it.
  /// - io_failed: it cannot be read.
  /// - bad_data: as `parse_manifest`; a file is missing or has another size. Names the file. Or it
  ///   is an incomplete save: names what is missing, and who held it.
  static Result<Checkpoint> open(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const CheckpointManifest& manifest() const { return manifest_; }

  /// Whether every byte is as it was written. Cost: reads all of it.
  /// Errors: io_failed; bad_data: a file has another checksum. Names the file.
  Status verify() const;

  /// The id of a saved parameter; invalid where there is none of this name.
  ParameterId find(const std::string& name) const;

  /// A piece of what was saved, in `type`: [shape of the box], moments [2, shape of the box].
  /// Values come from the exact copy where one was saved, and the exact copy from the value where
  /// none was.
  ///
  /// Errors: not_found: no such parameter, or no moments of it. As `SafetensorsReader::read`;
  /// bad_data: a tensor has another shape than the manifest says.
  Result<at::Tensor> read(const std::string& parameter, StateKind kind, const Box& box,
                          at::ScalarType type) const;

 private:
  Checkpoint() = default;
  Result<const SafetensorsReader*> file(std::int32_t index) const;
  Result<at::Tensor> read_shard(const CheckpointShard& shard) const;

  std::filesystem::path folder_;
  CheckpointManifest manifest_;
  std::map<std::string, ParameterId> names_;
  mutable std::map<std::int32_t, std::unique_ptr<SafetensorsReader>> files_;  ///< Open ones.
};

/// `FOLDER/step-12`.
std::filesystem::path checkpoint_folder(const std::filesystem::path& folder, std::int64_t step);

/// The checkpoints in a folder by their step; those that are being written, or were left
/// half-written, are not among them. Empty where the folder is not there.
std::map<std::int64_t, std::filesystem::path> checkpoints_in(const std::filesystem::path& folder);

/// What became of looking for a checkpoint to go on from.
struct FoundCheckpoint {
  std::unique_ptr<Checkpoint> newest;  ///< The newest whole one; null: none is.
  std::vector<Error> passed_over;      ///< Newer ones that are not, and why.
  /// The newest incomplete save, where it is of a later step than the newest whole one.
  std::optional<Error> incomplete;
};

/// Looks from the newest on, with `verify`.
FoundCheckpoint find_checkpoint(const std::filesystem::path& folder);

}  // namespace troupe::state
