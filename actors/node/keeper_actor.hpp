// Completes checkpoints in the head process: devices have written their shares, the keeper adds
// what makes a checkpoint of them, gives it its name, and removes the oldest.

#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "actors/link/protocol.hpp"
#include "runtime/state/checkpoint_manifest.hpp"

namespace troupe::actors {

/// A checkpoint whose shares lie in `partial`.
struct WrittenCheckpoint {
  std::int64_t number = 0;  ///< Of the save.
  std::filesystem::path partial;
  std::filesystem::path folder;  ///< The name that it gets.
  state::CheckpointManifest manifest;
  std::string resolved_job;
  /// Of a job that failed: what comes of this state nobody has seen, so older ones stay.
  bool leaves_older = false;
};

struct KeptCheckpoint {
  std::int64_t number = 0;
  Status status = Done{};  ///< Where it is not kept: why.
  /// Older ones that could not be removed, and why.
  std::vector<Error> left_behind;
};

struct KeeperState {
  std::int32_t keep_last = 0;
  SupervisorActor supervisor;

  static inline const char* name = "keeper";
};

/// REQUIRES: spawned detached; it waits for the disk in its handlers.
/// `keep_last`: older checkpoints are removed; 0: none is.
KeeperActor::behavior_type keeper(KeeperActor::stateful_pointer<KeeperState> self,
                                  std::int32_t keep_last, SupervisorActor supervisor);

}  // namespace troupe::actors
