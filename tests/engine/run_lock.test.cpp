#include "tests/torch_catch.hpp"

#include "engine/run/run_lock.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "engine/profiling/this_machine.hpp"
#include "tests/support/scratch_folder.hpp"

namespace troupe::engine {
namespace {

using Catch::Matchers::ContainsSubstring;

/// Seconds after which a lock looks as if it was left behind.
constexpr int kLongAgo = 2 * static_cast<int>(kLockSilence.count());

/// A lock file as a process of `host` left it, touched `seconds` ago.
void leave_lock(const std::filesystem::path& run, const std::string& host, long process,
                int seconds) {
  const auto path = lock_path(run);
  std::ofstream(path) << R"({"host":")" << host << R"(","process":)" << process
                      << R"(,"since":"2026-11-23 10:00:00"})";
  const timespec when{std::time(nullptr) - seconds, 0};
  const timespec both[2] = {when, when};
  REQUIRE(::utimensat(AT_FDCWD, path.c_str(), both, 0) == 0);
}

TEST_CASE("a run folder has one job at a time, and the other is named", "[engine][errors]") {
  const testing::ScratchFolder scratch;
  auto first = RunLock::take(scratch / "run");
  REQUIRE(first.ok());
  CHECK(first.value().left_behind().empty());
  CHECK_FALSE(first.value().may_wake());

  // Another open file is another owner, also within a process.
  const auto second = RunLock::take(scratch / "run");
  REQUIRE_FALSE(second.ok());
  CHECK(second.error().code == Errc::unavailable);
  CHECK_THAT(second.error().message,
             ContainsSubstring("process " + std::to_string(::getpid()) + " on "));
  CHECK_THAT(second.error().where, ContainsSubstring("run"));
  CHECK_THAT(second.error().fix, ContainsSubstring("job.run_dir"));
  const auto owner = lock_owner(scratch / "run");
  REQUIRE(owner);
  CHECK(owner->process == ::getpid());
  CHECK(owner->host == host_name());
  CHECK_THAT(second.error().message, ContainsSubstring(owner->since));
  CHECK_FALSE(lock_owner(scratch / "another"));
  // However the folder is written.
  CHECK_FALSE(RunLock::take(scratch / "run/").ok());
  CHECK_FALSE(RunLock::take(scratch / "other/../run").ok());
  CHECK(RunLock::take(scratch / "run.1").ok());

  first.value().release();
  CHECK_FALSE(std::filesystem::exists(lock_path(scratch / "run")));
  CHECK(RunLock::take(scratch / "run").ok());
}

TEST_CASE("a folder of checkpoints has one job at a time, and a live run's is its own",
          "[engine][errors]") {
  const testing::ScratchFolder scratch;
  const auto first = lock_checkpoints(scratch / "saved");
  REQUIRE((first.ok() && first.value()));
  const auto second = lock_checkpoints(scratch / "saved");
  REQUIRE_FALSE(second.ok());
  CHECK(second.error().code == Errc::unavailable);
  CHECK_THAT(second.error().message,
             ContainsSubstring("another job writes this folder of checkpoints: process "));
  CHECK(second.error().where == (scratch / "saved").string());
  CHECK_THAT(second.error().fix, ContainsSubstring("another checkpoint.dir"));
  first.value()->release();
  CHECK(lock_checkpoints(scratch / "saved").ok());

  const auto run = RunLock::take(scratch / "run");
  REQUIRE(run.ok());
  std::filesystem::create_directories(scratch / "run" / "checkpoints");
  CHECK_FALSE(lock_checkpoints(scratch / "run" / "checkpoints").ok());
}

TEST_CASE("checkpoints that cannot be locked are no reason not to train", "[engine]") {
  const auto none = lock_checkpoints("/proc/nowhere/checkpoints");
  REQUIRE(none.ok());
  CHECK_FALSE(none.value());
}

TEST_CASE("a lock that cannot be written leaves the process its other ones",
          "[engine][errors][takeover]") {
  const testing::ScratchFolder scratch;
  const auto own = RunLock::take(scratch / "run");  // In the same second as the one that fails.
  REQUIRE(own.ok());
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit room{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &room) == 0);
  const rlimit none{0, room.rlim_max};  // As on a full disk.
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &none) == 0);
  const auto other = RunLock::take(scratch / "saved");
  ::setrlimit(RLIMIT_FSIZE, &room);
  std::signal(SIGXFSZ, before);
  REQUIRE_FALSE(other.ok());
  CHECK(other.error().code == Errc::io_failed);
  CHECK_FALSE(is_taken_over(scratch / "run"));
}

TEST_CASE("the lock stays while the folder below it is moved aside", "[engine]") {
  const testing::ScratchFolder scratch;
  std::filesystem::create_directories(scratch / "run");
  const auto held = RunLock::take(scratch / "run");
  REQUIRE(held.ok());
  std::filesystem::rename(scratch / "run", scratch / "run.1");
  CHECK_FALSE(RunLock::take(scratch / "run").ok());
}

TEST_CASE("a process that is killed leaves its lock to the next", "[engine]") {
  const testing::ScratchFolder scratch;
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lock = RunLock::take(scratch / "run");
    const char answer = lock.ok() ? 'y' : 'n';
    if (::write(ready[1], &answer, 1) != 1) ::_exit(1);
    ::pause();
    ::_exit(0);
  }
  char answer = 0;
  REQUIRE(::read(ready[0], &answer, 1) == 1);
  REQUIRE(answer == 'y');
  CHECK_FALSE(RunLock::take(scratch / "run").ok());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);

  const auto taken = RunLock::take(scratch / "run");
  REQUIRE(taken.ok());
  CHECK_THAT(taken.value().left_behind(), ContainsSubstring("process " + std::to_string(child)));
  CHECK_FALSE(taken.value().may_wake());
}

TEST_CASE("whether a job writes a folder is told without a lock", "[engine]") {
  const testing::ScratchFolder scratch;
  const auto run = scratch / "run";
  CHECK_FALSE(is_locked(run));
  auto lock = RunLock::take(run);
  CHECK(is_locked(run));
  lock.value().release();
  CHECK_FALSE(is_locked(run));
  leave_lock(run, "another-host", 1, 5);
  CHECK(is_locked(run));
  leave_lock(run, "another-host", 1, 100);
  CHECK_FALSE(is_locked(run));
  // A process that is gone, and one that only has its number.
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  leave_lock(run, host_name(), child, 1);
  CHECK_FALSE(is_locked(run));
  leave_lock(run, host_name(), ::getpid(), 100);
  CHECK_FALSE(is_locked(run));
}

TEST_CASE("a lock with this process's own number was left behind, in a container that began anew",
          "[engine]") {
  const testing::ScratchFolder scratch;
  leave_lock(scratch / "run", host_name(), ::getpid(), 5);
  const auto lock = RunLock::take(scratch / "run");
  REQUIRE(lock.ok());
  CHECK(lock.value().left_behind() ==
        "process " + std::to_string(::getpid()) + " on " + host_name());
}

TEST_CASE("another machine's lock holds while it is touched", "[engine]") {
  const testing::ScratchFolder scratch;
  const auto run = scratch / "run";
  leave_lock(run, "another-host", 1, 5);
  std::atomic<bool> ends = false;
  std::thread toucher([&] {
    while (!ends) {
      ::utimensat(AT_FDCWD, lock_path(run).c_str(), nullptr, 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  const auto refused = RunLock::take(run);
  ends = true;
  toucher.join();
  REQUIRE_FALSE(refused.ok());
  CHECK_THAT(refused.error().message,
             ContainsSubstring("process 1 on another-host since 2026-11-23 10:00:00"));
  // Its machine is gone, and its last touch not long ago: so much is watched.
  const auto begin = std::chrono::steady_clock::now();
  const auto watched = RunLock::take(run, {}, std::chrono::milliseconds(400));
  CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(400));
  REQUIRE(watched.ok());
  CHECK(watched.value().left_behind() == "process 1 on another-host");
  CHECK(watched.value().may_wake());
}

TEST_CASE("another machine's lock that was not touched for long is watched for less", "[engine]") {
  const testing::ScratchFolder scratch;
  constexpr std::chrono::seconds kSilence{3};
  leave_lock(scratch / "run", "another-host", 1, kLongAgo);
  const auto begin = std::chrono::steady_clock::now();
  const auto taken = RunLock::take(scratch / "run", {}, kSilence);
  const auto took = std::chrono::steady_clock::now() - begin;
  CHECK(took >= kSilence / 3);
  CHECK(took < kSilence);
  REQUIRE(taken.ok());
  CHECK(taken.value().left_behind() == "process 1 on another-host");
}

TEST_CASE("another machine's lock is not taken for its age by a clock that is ahead", "[engine]") {
  const testing::ScratchFolder scratch;
  const auto run = scratch / "run";
  leave_lock(run, "another-host", 1, kLongAgo);
  std::atomic<bool> ends = false;
  std::thread toucher([&] {  // By the clock of who keeps the file, half a minute behind ours.
    while (!ends) {
      timespec now{};
      ::clock_gettime(CLOCK_REALTIME, &now);
      now.tv_sec -= kLongAgo;
      const timespec both[2] = {now, now};
      ::utimensat(AT_FDCWD, lock_path(run).c_str(), both, 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  const auto refused = RunLock::take(run, {}, std::chrono::seconds(3));
  ends = true;
  toucher.join();
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::unavailable);
  CHECK_THAT(refused.error().message, ContainsSubstring("process 1 on another-host"));
}

TEST_CASE("a lock that is taken over is another file, so that who held it leaves it alone",
          "[engine]") {
  const testing::ScratchFolder scratch;
  const auto path = lock_path(scratch / "run");
  leave_lock(scratch / "run", "another-host", 1, kLongAgo);
  const int old = ::open(path.c_str(), O_RDONLY);  // As the process has it that sleeps there.
  struct stat left {
  }, made{};
  REQUIRE(::fstat(old, &left) == 0);
  const auto lock = RunLock::take(scratch / "run", {}, std::chrono::milliseconds(400));
  REQUIRE(lock.ok());
  REQUIRE(::stat(path.c_str(), &made) == 0);
  CHECK(left.st_ino != made.st_ino);
  ::close(old);
  CHECK_FALSE(RunLock::take(scratch / "run").ok());  // The new one is locked as any other.
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path.parent_path()))
    files += entry.is_regular_file() ? 1 : 0;
  CHECK(files == 1);  // Nothing lies about.
}

/// A process that takes the lock and ends once it hears that another one has it: with 7 where it
/// is told who, with 8 where nobody has it any more.
class LockedChild {
 public:
  explicit LockedChild(const std::filesystem::path& run,
                       std::chrono::milliseconds silence = kSilence) {
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    process_ = ::fork();
    if (process_ == 0) {
      const auto lock = RunLock::take(run, {}, silence, [](const Error& why) {
        const bool is_told =
            why.message.find("by process 1 on another-host since") != std::string::npos &&
            why.code == Errc::unavailable;
        ::_exit(is_told ? 7 : 8);
      });
      const char answer = lock.ok() ? 'y' : 'n';
      if (::write(ready[1], &answer, 1) == 1) ::pause();
      ::_exit(1);
    }
    char answer = 0;
    REQUIRE(::read(ready[0], &answer, 1) == 1);
    REQUIRE(answer == 'y');
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~LockedChild() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }

  void signal(int which) const { ::kill(process_, which); }

  /// Stands still, as a process that is stopped.
  void stop() const {
    signal(SIGSTOP);
    ::waitpid(process_, nullptr, WUNTRACED);
  }

  /// Its exit code, or -1 where it goes on.
  int ended_within(std::chrono::milliseconds time) const {
    const auto end = std::chrono::steady_clock::now() + time;
    siginfo_t how{};
    while (std::chrono::steady_clock::now() < end) {
      REQUIRE(::waitid(P_PID, static_cast<id_t>(process_), &how, WEXITED | WNOHANG | WNOWAIT) == 0);
      if (how.si_pid == process_) return how.si_status;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return -1;
  }

  static constexpr std::chrono::milliseconds kSilence{400};
  /// Long enough for a busy machine; passes only when a test fails.
  static constexpr std::chrono::seconds kPatience{30};

 private:
  pid_t process_ = -1;
};

// Window: a head that was only stopped wakes when another one has taken over
TEST_CASE("who was only stopped notices on waking that its lock was taken over", "[engine]") {
  const testing::ScratchFolder scratch;
  const auto run = scratch / "run";
  const LockedChild child(run);
  child.stop();
  // As the process of another machine leaves it, which sees no lock there: a file of its own.
  leave_lock(scratch / "made", "another-host", 1, 0);
  std::filesystem::rename(lock_path(scratch / "made"), lock_path(run));
  child.signal(SIGCONT);
  CHECK(child.ended_within(LockedChild::kPatience) == 7);
  const auto owner = lock_owner(run);
  REQUIRE(owner);
  CHECK(owner->text() == "process 1 on another-host");
}

TEST_CASE("who was stopped for long notices also that its lock was let go since", "[engine]") {
  const testing::ScratchFolder scratch;
  const LockedChild child(scratch / "run");
  child.stop();
  std::filesystem::remove(lock_path(scratch / "run"));
  std::this_thread::sleep_for(2 * LockedChild::kSilence);
  child.signal(SIGCONT);
  CHECK(child.ended_within(LockedChild::kPatience) == 8);
}

TEST_CASE("a lock that is touched, or whose file says nothing, is still one's own", "[engine]") {
  const testing::ScratchFolder scratch;
  const auto path = lock_path(scratch / "run");
  const LockedChild child(scratch / "run");
  CHECK(child.ended_within(2 * LockedChild::kSilence) == -1);
  // Who takes it over has not written yet who it is.
  std::ofstream(scratch / "empty") << "";
  std::filesystem::rename(scratch / "empty", path);
  CHECK(child.ended_within(2 * LockedChild::kSilence) == -1);
}

TEST_CASE("a lock file that somebody removes ends nobody who did not stand still", "[engine]") {
  const testing::ScratchFolder scratch;
  const LockedChild child(scratch / "run", std::chrono::seconds(8));  // It looks every 2 s.
  std::filesystem::remove(lock_path(scratch / "run"));
  CHECK(child.ended_within(std::chrono::milliseconds(2500)) == -1);
}

TEST_CASE("what is no lock of ours is taken over, a folder that cannot be written is an error",
          "[engine][errors]") {
  const testing::ScratchFolder scratch;
  for (const char* text : {"", "{", "[]", R"({"host":1})", R"({"host":"a","process":"b"})"}) {
    std::ofstream(lock_path(scratch / "run")) << text;
    CHECK(RunLock::take(scratch / "run").ok());
  }
  std::ofstream(scratch / "file") << "no folder";
  const auto refused = RunLock::take(scratch / "file" / "run");
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::io_failed);
}

}  // namespace
}  // namespace troupe::engine
