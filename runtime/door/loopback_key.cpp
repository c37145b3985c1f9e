#include "runtime/door/loopback_key.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>

namespace troupe::door {

namespace {

/// Of this user alone: where the system says, else below /tmp.
std::filesystem::path folder() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/') return std::filesystem::path(runtime) / "troupe";
  return "/tmp/troupe-" + std::to_string(geteuid());
}

/// Ports are counted per network namespace, and files are not.
std::filesystem::path file_of(std::uint16_t port) {
  struct stat facts {};
  const auto network = stat("/proc/self/ns/net", &facts) == 0 ? facts.st_ino : 0;
  return folder() / (std::to_string(network) + "-" + std::to_string(port) + ".key");
}

/// Whether the folder is this user's, and nobody else gets in. Done where there is none.
Status check_folder() {
  const auto path = folder();
  struct stat facts {};
  if (lstat(path.c_str(), &facts) != 0) return Done{};
  if (S_ISDIR(facts.st_mode) && facts.st_uid == geteuid() && (facts.st_mode & 077) == 0)
    return Done{};
  return Error{Errc::io_failed, "this should be a folder that only you can enter", path.string(),
               "remove it, or set XDG_RUNTIME_DIR"};
}

/// Keys of jobs that were killed: nobody holds them. A job between writing and locking its key is
/// spared by its file's age.
void remove_left_keys() {
  constexpr auto kYoung = std::chrono::seconds(10);
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder(), ignored)) {
    const auto age = std::filesystem::file_time_type::clock::now() - entry.last_write_time(ignored);
    if (entry.path().extension() != ".key" || age < kYoung) continue;
    const int left = open(entry.path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (left < 0) continue;
    if (flock(left, LOCK_EX | LOCK_NB) == 0) std::filesystem::remove(entry.path(), ignored);
    close(left);
  }
}

}  // namespace

Result<LoopbackKey> LoopbackKey::offer(std::uint16_t port, const JobKey& key) {
  const auto path = folder();
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return Error{Errc::io_failed,
                 std::string("cannot make the folder for keys: ") + strerror(errno), path.string(),
                 "set XDG_RUNTIME_DIR to a folder of yours"};
  if (auto safe = check_folder(); !safe.ok()) return std::move(safe).error();
  const auto file = file_of(port);
  // The port is this job's, so what lies there is of a job that was killed.
  std::error_code ignored;
  std::filesystem::remove(file, ignored);
  remove_left_keys();
  if (auto written = write_key(file, key); !written.ok()) return std::move(written).error();
  const int lock = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (lock >= 0) flock(lock, LOCK_EX | LOCK_NB);
  return LoopbackKey(file, lock);
}

LoopbackKey::~LoopbackKey() { withdraw(); }

void LoopbackKey::withdraw() {
  if (!file_.empty()) unlink(file_.c_str());
  file_.clear();
  if (lock_ >= 0) close(lock_);
  lock_ = -1;
}

Result<std::optional<JobKey>> find_loopback_key(std::uint16_t port) {
  if (auto safe = check_folder(); !safe.ok()) return std::move(safe).error();
  auto key = read_key(file_of(port));
  if (key.ok()) return std::optional<JobKey>{key.value()};
  if (key.error().code == Errc::not_found) return std::optional<JobKey>{};
  return std::move(key).error();
}

}  // namespace troupe::door
