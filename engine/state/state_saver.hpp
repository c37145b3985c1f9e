// Writes a device's share of a checkpoint beside its training.
//
// State changes only in optimizer steps: while a thread copies the shards, forward and backward go
// on, and only the next optimizer step may have to wait, for the rest of the copying
// (`may_change`). What is copied is then written at leisure. Owned and called by one thread; only
// `wake` is called from another. A thread that hangs in a write is left to itself when its owner
// goes.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/state/checkpoint_manifest.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

/// What became of a device's share.
struct SavedShare {
  std::int64_t number = 0;  ///< As `start` was told.
  /// Errors: io_failed; infeasible: no memory for the copy; internal: not finite, and checked,
  /// or the device failed.
  Status status = Done{};
  state::CheckpointFile file;  ///< Where it is well.
  double copy_ms = 0;
  double write_ms = 0;
};

class StateSaver {
 public:
  /// `wake` may be called from any thread, when `may_change` or `take` have news.
  explicit StateSaver(std::function<void()> wake) : wake_(std::move(wake)) {}

  /// Begins to write these tensors, each under its name, as `file` (its folder is made). `number`
  /// comes back with the share. They keep their memory, and nobody writes to them until
  /// `may_change`: they are copied first, unless nobody waits for that (`copies` is false), which
  /// costs time and memory that a last save does not need. `is_checked`: nothing is written where
  /// one of them is not finite. REQUIRES: not `busy`.
  void start(std::int64_t number, std::filesystem::path file,
             std::vector<std::pair<std::string, at::Tensor>> tensors, bool copies = true,
             bool is_checked = false);

  /// Whether a share is being written, or was and has not been taken.
  bool busy() const { return share_ != nullptr; }
  /// Whether the tensors may change.
  bool may_change() const;
  /// The share that is done, once.
  std::optional<SavedShare> take();

 private:
  struct Share;
  static void save(Share& share, const std::function<void()>& wake);

  std::function<void()> wake_;
  std::shared_ptr<Share> share_;
};

}  // namespace troupe::engine
