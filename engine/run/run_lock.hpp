// One job at a time in a run folder: a lock file beside the folder, RUN's parent/.NAME.lock, with
// the host and process that hold it.
//
// Beside, not inside, because an older run's folder is moved aside while the lock is held. The
// system lets go of the lock when its process ends, however it ends. Between machines that share a
// folder whose file system does not carry locks, the file's age stands in: it is touched while the
// job lives. A process that was only stopped finds, when it wakes, that another one has taken its
// lock over. Thread-safe; used by the process that writes the folder.

#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

/// A lock that another machine holds counts as left behind when it was not touched for so long; a
/// quarter of what nodes wait for their next head, which may be on yet another machine.
inline constexpr std::chrono::seconds kLockSilence{15};

/// What a lock is of, in the words of errors, and the key that names another.
struct LockedFolder {
  const char* name = "run folder";
  const char* key = "job.run_dir";
};

/// Who holds a lock, as its file says.
struct LockOwner {
  std::string host;
  std::int64_t process = 0;
  std::string since;  ///< Local time there, `2026-11-23 10:00:00`.

  std::string text() const { return "process " + std::to_string(process) + " on " + host; }
  friend bool operator==(const LockOwner&, const LockOwner&) = default;
};

/// Told once, from a thread of the lock's own, that the lock is not this process's any more:
/// unavailable, with who took it over where that is known. Must not let go of the lock itself, but
/// may have another thread do so.
using OnTaken = std::function<void(const Error& why)>;

class RunLock {
 public:
  /// Holds the lock of `run_dir` until `release` or the end of the process. A lock whose process is
  /// gone is taken over; `left_behind` then says whose it was. Whether a process of another machine
  /// lives is not known before its lock was watched for `silence`: where it is not touched
  /// meanwhile it is gone. A third of that is enough where the last touch is older than
  /// kLockSilence by this machine's clock; which may be ahead of that of who keeps the file, so
  /// that no lock is taken by that alone. `on_taken` hears when another process did the same to
  /// this one: its file lies there, or none does any more though this process stood still for
  /// `silence`. A file that is removed by hand is borne.
  ///
  /// Errors:
  /// - unavailable: another job writes there; host, process and since when.
  /// - io_failed: the file cannot be made, with the system's text.
  static Result<RunLock> take(const std::filesystem::path& run_dir, const LockedFolder& what = {},
                              std::chrono::milliseconds silence = kLockSilence,
                              OnTaken on_taken = {});

  RunLock(RunLock&&) noexcept;
  RunLock& operator=(RunLock&&) noexcept;
  /// As `release`.
  ~RunLock();

  /// `process 12 on host a`, or empty.
  const std::string& left_behind() const { return left_behind_; }

  /// Whether that one may only have been stopped, and wake: the system, which lets go of locks,
  /// does not say that it has ended, of another machine or where the file system carries no locks.
  bool may_wake() const { return may_wake_; }

  /// Removes the lock file and lets go. Again: nothing.
  void release();

 private:
  struct Held;
  RunLock();

  std::unique_ptr<Held> held_;
  std::string left_behind_;
  bool may_wake_ = false;
};

/// The lock of a folder that is for checkpoints alone: beside it, or in it where its parent cannot
/// be written. Nothing where neither can: saving tells that, and training goes on. `on_taken`: as
/// of `RunLock::take`.
///
/// Errors: unavailable: another job saves there, or it belongs to the run folder of one that runs.
Result<std::shared_ptr<RunLock>> lock_checkpoints(const std::filesystem::path& folder,
                                                  const OnTaken& on_taken = {});

/// Whether a job writes the folder now: its process lives, and touched the lock file not long ago.
/// Takes nothing, so that a job which starts at this moment is not refused.
bool is_locked(const std::filesystem::path& run_dir);

/// Whose lock it is, whether that process lives or not; none: nobody's, or the file does not say.
std::optional<LockOwner> lock_owner(const std::filesystem::path& run_dir);

/// Whether the lock is another process's. To be asked before a file of the folder is replaced
/// whole: a process that was only stopped may come to that before it hears `OnTaken`.
bool is_taken_over(const std::filesystem::path& run_dir);

/// The lock file of a run folder.
std::filesystem::path lock_path(const std::filesystem::path& run_dir);

}  // namespace troupe::engine
