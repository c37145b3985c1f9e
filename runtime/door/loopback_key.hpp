// How processes of one user on one machine know the key of a job that nobody gave one.
//
// A job without `cluster.key` listens on the loopback, with a key made for it alone. It lies in a
// folder that only this user can enter, under the job's port, until the job ends. What a killed job
// left there is known by its lock, which the system lets go, and taken away by the next one.

#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "runtime/door/job_key.hpp"

namespace troupe::door {

class LoopbackKey {
 public:
  /// Puts the key where `find_loopback_key` looks.
  /// Errors: io_failed: the folder cannot be made, or is not this user's alone.
  static Result<LoopbackKey> offer(std::uint16_t port, const JobKey& key);
  ~LoopbackKey();
  LoopbackKey(LoopbackKey&& other) noexcept
      : file_(std::exchange(other.file_, {})), lock_(std::exchange(other.lock_, -1)) {}
  LoopbackKey& operator=(LoopbackKey&&) = delete;

  /// Takes it away.
  void withdraw();

 private:
  LoopbackKey(std::filesystem::path file, int lock) : file_(std::move(file)), lock_(lock) {}
  std::filesystem::path file_;
  int lock_ = -1;  ///< The file, held locked while the job lives.
};

/// The key of this user's job that listens on this port of the loopback, if there is one.
/// Errors: io_failed or invalid_argument: something else lies there.
Result<std::optional<JobKey>> find_loopback_key(std::uint16_t port);

}  // namespace troupe::door
