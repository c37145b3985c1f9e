// manifest.json of a checkpoint: what it holds and where, checked before use.
//
// Text in, values out; no files, no torch. The format stands in README.md beside this file.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/vocabulary/job_progress.hpp"
#include "runtime/vocabulary/model_config.hpp"
#include "runtime/vocabulary/model_state.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::state {

/// Of the format: a reader refuses newer ones.
inline constexpr std::int64_t kCheckpointFormat = 1;

/// A file of the checkpoint's folder.
struct CheckpointFile {
  std::string name;  ///< Without a folder.
  std::int64_t bytes = 0;
  std::string sha256;  ///< As `sha256sum` prints it.

  friend bool operator==(const CheckpointFile&, const CheckpointFile&) = default;
};

/// A shard, and the file that holds it under `tensor_name`.
struct CheckpointShard {
  ShardKey key;
  std::int32_t file = 0;  ///< Index into the files.

  friend bool operator==(const CheckpointShard&, const CheckpointShard&) = default;
};

/// A parameter as it was saved. Its id is its index.
struct SavedParameter {
  std::string name;
  std::vector<std::int64_t> shape;
  bool trains = false;

  friend bool operator==(const SavedParameter&, const SavedParameter&) = default;
};

/// A parameter of a model as it is saved.
inline SavedParameter saved_as(const ParameterInfo& info) {
  return {info.name, info.shape, info.trains};
}

/// A shard of an incomplete save that it has not, because nobody was left who held it.
struct MissingShard {
  ShardKey key;
  std::string held_by;  ///< The last to hold it, `node 1 (host, pid 71)`; empty: not known.

  friend bool operator==(const MissingShard&, const MissingShard&) = default;
};

struct CheckpointManifest {
  std::string job;         ///< `job.name`.
  std::string build;       ///< Version and commit that wrote it.
  std::string written_at;  ///< UTC.
  Dtype dtype = Dtype::fp32;
  JobProgress progress;
  std::vector<SavedParameter> parameters;
  std::vector<CheckpointFile> files;
  std::vector<CheckpointShard> shards;  ///< Ascending by key.
  std::vector<MissingShard> missing;    ///< Of an incomplete save, ascending by key; else empty.

  /// Of all files.
  std::int64_t bytes() const;
  friend bool operator==(const CheckpointManifest&, const CheckpointManifest&) = default;
};

/// `llm.norm.weight`, `llm.norm.weight@moments`, `llm.norm.weight@master[0:8]`: the kind where it
/// is not the value, the box where it is not the whole parameter.
std::string tensor_name(const SavedParameter& parameter, const ShardKey& key);

/// One JSON object, indented.
std::string manifest_json(const CheckpointManifest& manifest);

/// Accepts a manifest whose shards hold every element of every parameter once: values of all,
/// moments of those that train, and masters of these where the type is narrow; whose files have
/// plain names. What an incomplete save lists as missing counts as held: whoever reads a manifest
/// to go on from it looks at `missing`, as `Checkpoint::open` does.
///
/// Errors: bad_data: anything else, or a newer format; says what.
Result<CheckpointManifest> parse_manifest(std::string_view text);

}  // namespace troupe::state
