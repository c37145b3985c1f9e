#include "engine/run/run_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <ctime>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "engine/profiling/this_machine.hpp"
#include "runtime/files/file_reads.hpp"

namespace troupe::engine {

namespace fs = std::filesystem;

namespace {

constexpr std::chrono::seconds kTouchInterval{2};
constexpr std::chrono::milliseconds kLookInterval{200};
/// Of `silence`, what a lock is watched for that looks old. A clock that is wrong makes one look so
/// that is touched all the time; and a head that saves for waiting nodes has to lock two folders.
constexpr int kOldShare = 3;
static_assert(kLockSilence / kOldShare > 2 * kTouchInterval);
constexpr int kTriesMax = 100;  // Another process may remove the file between two calls of ours.

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%F %T", localtime_r(&now, &parts));
  return text.data();
}

Error failed(const std::string& doing, const fs::path& path, const LockedFolder& what) {
  return {Errc::io_failed,
          doing + " the lock of the " + what.name + " failed: " + std::strerror(errno),
          path.string(), std::string("choose a ") + what.key + " in a folder that can be written"};
}

/// Nothing where the file says nothing: its owner has not written yet, or it is not ours.
std::optional<LockOwner> read_owner(int file) {
  std::array<char, 1024> text{};
  const auto size = ::pread(file, text.data(), text.size() - 1, 0);
  if (size <= 0) return std::nullopt;
  const auto json = nlohmann::json::parse(text.data(), text.data() + size, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  const auto host = json.find("host"), process = json.find("process"), since = json.find("since");
  if (host == json.end() || !host->is_string() || process == json.end() ||
      !process->is_number_integer() || since == json.end() || !since->is_string())
    return std::nullopt;
  return LockOwner{*host, *process, *since};
}

Status write_owner(int file, const fs::path& path, const LockedFolder& what,
                   const LockOwner& owner) {
  const nlohmann::json json{
      {"host", owner.host}, {"process", owner.process}, {"since", owner.since}};
  const std::string text = json.dump() + "\n";
  if (::ftruncate(file, 0) != 0 ||
      ::pwrite(file, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    return failed("writing", path, what);
  return Done{};
}

Error in_use(const std::optional<LockOwner>& owner, const fs::path& run_dir,
             const LockedFolder& what) {
  const std::string who =
      owner ? owner->text() + " since " + owner->since : std::string("another process");
  return {Errc::unavailable, std::string("another job writes this ") + what.name + ": " + who,
          run_dir.string(),
          std::string("wait for it or stop it, or give this job another ") + what.key};
}

/// What a process hears that wakes and finds its lock another one's; `owner`: none has it now.
Error taken_over(const std::optional<LockOwner>& owner, const fs::path& run_dir,
                 const LockedFolder& what) {
  const std::string who = owner ? "by " + owner->text() + " since " + owner->since
                                : "by another process, which has ended since";
  return {Errc::unavailable,
          std::string("this ") + what.name + " was taken over " + who +
              ", while this process stood still: it writes nothing there any more",
          run_dir.string(),
          owner ? "none needed where the same job goes on there"
                : "look there how it ended; the same command goes on with what it left"};
}

/// Whether the open file is still the one at `path`.
bool is_at(int file, const fs::path& path) {
  struct stat opened {
  }, there{};
  return ::fstat(file, &opened) == 0 && ::stat(path.c_str(), &there) == 0 &&
         opened.st_ino == there.st_ino && opened.st_dev == there.st_dev;
}

/// Also a process of another user, which may not be asked.
bool is_alive(pid_t process) { return ::kill(process, 0) == 0 || errno == EPERM; }

std::chrono::seconds age_of(int file) {
  struct stat info {};
  if (::fstat(file, &info) != 0) return {};
  return std::chrono::seconds(std::time(nullptr) - info.st_mtime);
}

/// By this machine's clock, which may be ahead of that of who keeps the file.
bool looks_old(int file) { return age_of(file) >= kLockSilence; }

/// When it was touched last, by the clock of who keeps the file; opened anew, since a network file
/// system may answer for an open one from memory. None: it is gone.
std::optional<std::int64_t> touched_ns(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat info {};
  const bool is_there = file >= 0 && ::fstat(file, &info) == 0;
  if (file >= 0) ::close(file);
  if (!is_there) return std::nullopt;
  return std::int64_t{1'000'000'000} * info.st_mtim.tv_sec + info.st_mtim.tv_nsec;
}

/// Whether the lock is touched, or goes away, while it is watched for so long.
bool changes_within(const fs::path& path, std::chrono::milliseconds silence) {
  const auto first = touched_ns(path);
  const auto end = std::chrono::steady_clock::now() + silence;
  do {
    std::this_thread::sleep_for(std::min(kLookInterval, silence));
    if (touched_ns(path) != first) return true;
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

/// A file of our own where one lies that was left behind: whoever held that one and wakes again
/// must not take ours for its own. The new file, or -1.
int replace(const fs::path& path) {
  const fs::path made = path.string() + "." + host_name() + "." + std::to_string(::getpid());
  const int file = ::open(made.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return -1;
  ::flock(file, LOCK_EX | LOCK_NB);
  if (::rename(made.c_str(), path.c_str()) == 0) return file;
  ::unlink(made.c_str());
  ::close(file);
  return -1;
}

/// As the lock files say it that this process holds: a machine may have got another name since.
/// Never destroyed, as locks may be let go of while the process ends.
struct OwnLocks {
  std::mutex mutex;
  std::vector<LockOwner> held;
};

OwnLocks& own_locks() {
  static auto& locks = *new OwnLocks;
  return locks;
}

bool is_own(const LockOwner& owner) {
  OwnLocks& locks = own_locks();
  const std::lock_guard lock(locks.mutex);
  return std::ranges::find(locks.held, owner) != locks.held.end();
}

void add_own(const LockOwner& owner) {
  OwnLocks& locks = own_locks();
  const std::lock_guard lock(locks.mutex);
  locks.held.push_back(owner);
}

/// One of several that were taken in the same second, if there are.
void remove_own(const LockOwner& owner) {
  OwnLocks& locks = own_locks();
  const std::lock_guard lock(locks.mutex);
  const auto found = std::ranges::find(locks.held, owner);
  if (found != locks.held.end()) locks.held.erase(found);
}

}  // namespace

/// The open file, and the thread that shows that its owner lives.
struct RunLock::Held {
  fs::path run_dir;
  LockedFolder what;
  fs::path path;
  LockOwner own;
  std::chrono::milliseconds silence{};
  OnTaken on_taken;
  int file = -1;
  /// By the clock that goes on while a machine sleeps; from the start, which the thread may miss.
  std::chrono::system_clock::time_point touched = std::chrono::system_clock::now();
  std::mutex mutex;
  std::condition_variable changed;
  bool ends = false;
  bool is_noted = false;  ///< Among `own_locks`.
  std::thread toucher;

  void touch_until_end() {
    const auto interval = std::min<std::chrono::milliseconds>(kTouchInterval, silence / 4);
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, interval, [this] { return ends; })) {
      if (const auto why = taken(std::chrono::system_clock::now() - touched >= silence)) {
        lock.unlock();
        if (on_taken) on_taken(*why);
        return;
      }
      ::futimens(file, nullptr);
      touched = std::chrono::system_clock::now();
    }
  }

  /// Why the lock is not ours any more. Opened anew, as in `touched_ns`; what cannot be opened or
  /// read says nothing. `slept`: nothing was touched for so long that it may have been taken over,
  /// and let go by who did.
  std::optional<Error> taken(bool slept) const {
    const int there = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (there < 0)
      return errno == ENOENT && slept ? std::optional(taken_over(std::nullopt, run_dir, what))
                                      : std::nullopt;
    const auto owner = read_owner(there);
    ::close(there);
    if (!owner || *owner == own) return std::nullopt;
    return taken_over(owner, run_dir, what);
  }

  ~Held() {
    {
      const std::lock_guard lock(mutex);
      ends = true;
      changed.notify_all();
    }
    if (toucher.joinable()) toucher.join();  // First: it uses all the rest.
    if (file < 0) return;
    // Removed while it is held: nobody else can have taken it.
    if (is_at(file, path)) ::unlink(path.c_str());
    // Not before: to this process a file of an owner whom it has not noted is another one's.
    if (is_noted) remove_own(own);
    ::close(file);
  }
};

fs::path lock_path(const fs::path& run_dir) {
  std::error_code ignored;
  fs::path real = fs::weakly_canonical(run_dir, ignored);
  if (real.empty()) real = fs::absolute(run_dir, ignored);
  if (real.filename().empty()) real = real.parent_path();  // It ended in a slash.
  return real.parent_path() / ("." + real.filename().string() + ".lock");
}

namespace {

/// Who writes the folder now; nothing where nobody does.
std::optional<LockOwner> living_owner(const fs::path& run_dir) {
  const files::ReadingFile reading(run_dir);
  const int file = ::open(lock_path(run_dir).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  auto owner = read_owner(file);
  const bool fresh = !looks_old(file);
  ::close(file);
  // A number that the system gave to another process since is told by the file's age.
  const bool lives = owner && fresh &&
                     (owner->host != host_name() || is_alive(static_cast<pid_t>(owner->process)));
  return lives ? owner : std::nullopt;
}

}  // namespace

std::optional<LockOwner> lock_owner(const fs::path& run_dir) {
  const files::ReadingFile reading(run_dir);
  const int file = ::open(lock_path(run_dir).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  auto owner = read_owner(file);
  ::close(file);
  return owner;
}

bool is_taken_over(const fs::path& run_dir) {
  const auto owner = lock_owner(run_dir);
  return owner && !is_own(*owner);
}

bool is_locked(const fs::path& run_dir) { return living_owner(run_dir).has_value(); }

RunLock::RunLock() = default;
RunLock::RunLock(RunLock&&) noexcept = default;
RunLock& RunLock::operator=(RunLock&&) noexcept = default;
RunLock::~RunLock() = default;
void RunLock::release() { held_.reset(); }

Result<RunLock> RunLock::take(const fs::path& run_dir, const LockedFolder& what,
                              std::chrono::milliseconds silence, OnTaken on_taken) {
  const files::ReadingFile waits(run_dir, files::FileUse::write);
  const fs::path path = lock_path(run_dir);
  std::error_code code;
  fs::create_directories(path.parent_path(), code);
  for (int tries = 0; tries < kTriesMax; ++tries) {
    int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0) return failed("making", path, what);
    RunLock lock;
    const bool locked = ::flock(file, LOCK_EX | LOCK_NB) == 0;
    if (!locked && errno == EWOULDBLOCK) {
      const auto owner = read_owner(file);
      ::close(file);
      return in_use(owner, run_dir, what);
    }
    if (!is_at(file, path)) {  // Its owner removed it between our two calls.
      ::close(file);
      continue;
    }
    if (const auto owner = read_owner(file)) {
      // A file system without locks says so; then only what the file says counts.
      const bool here = owner->host == host_name();
      // Whoever had this process's own number is gone: in a container numbers begin anew.
      const auto process = static_cast<pid_t>(owner->process);
      const bool lives =
          here ? !locked && process != ::getpid() && is_alive(process)
               : changes_within(path, looks_old(file) ? silence / kOldShare : silence);
      if (lives) {
        ::close(file);
        return in_use(owner, run_dir, what);
      }
      const int own = replace(path);
      ::close(file);
      if (own < 0) return failed("taking over", path, what);
      file = own;
      lock.left_behind_ = owner->text();
      lock.may_wake_ = !here || !locked;
    }
    lock.held_ = std::make_unique<Held>();
    Held& held = *lock.held_;
    held.run_dir = run_dir;
    held.what = what;
    held.path = path;
    held.own = {host_name(), ::getpid(), now_text()};
    held.silence = silence;
    held.on_taken = std::move(on_taken);
    held.file = file;
    if (auto written = write_owner(file, path, what, held.own); !written.ok())
      return std::move(written).error();
    add_own(held.own);
    held.is_noted = true;
    held.toucher = std::thread([&held] { held.touch_until_end(); });
    return lock;
  }
  return in_use(std::nullopt, run_dir, what);
}

Result<std::shared_ptr<RunLock>> lock_checkpoints(const fs::path& folder, const OnTaken& on_taken) {
  constexpr LockedFolder kWhat{"folder of checkpoints", "checkpoint.dir"};
  const fs::path parent = [&] {
    const files::ReadingFile waits(folder, files::FileUse::write);
    return lock_path(folder).parent_path();
  }();
  if (const auto owner = living_owner(parent)) return in_use(owner, folder, kWhat);
  for (const fs::path& place : {folder, folder / "job"}) {
    auto lock = RunLock::take(place, kWhat, kLockSilence, on_taken);
    if (lock.ok()) return std::make_shared<RunLock>(std::move(lock).value());
    if (lock.error().code != Errc::unavailable) continue;
    Error error = std::move(lock).error();
    error.where = folder.string();
    return error;
  }
  return std::shared_ptr<RunLock>();
}

}  // namespace troupe::engine
