// A save that is cut at every system call: a child process is stepped from call to call and killed
// at each of them, with and without what it had not flushed to disk: bytes of files, and names.

#include "tests/torch_catch.hpp"

#include "runtime/state/checkpoint.hpp"

#include <fcntl.h>
#include <linux/limits.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/generators/catch_generators.hpp>
#include <csignal>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/state/checkpoint_keeping.hpp"
#include "tests/runtime/state/example_state.hpp"
#include "tests/support/scratch_folder.hpp"

namespace troupe::state {
namespace {

namespace fs = std::filesystem;
using troupe::testing::ScratchFolder;

constexpr std::int64_t kOldest = 2, kBefore = 4, kSaved = 6;

/// What the child does: one save as a job does it, and the oldest checkpoint goes.
[[noreturn]] void save_and_leave(const fs::path& folder) {
  const bool saved = write_example_checkpoint(folder, kSaved).ok();
  remove_older_checkpoints(folder, 2);
  ::_exit(saved ? 0 : 1);
}

/// A new name that is not on disk yet.
struct Rename {
  fs::path from, to;
  bool exchanged = false;
};

/// Follows a child's files by its system calls (x86-64): which of them hold bytes that a power cut
/// would take, and whether anything was removed before what replaces it was safe.
class Watcher {
 public:
  explicit Watcher(pid_t child) : child_(child) {}

  /// At the entry of a call, and again at its exit with the result.
  void note(const user_regs_struct& call, bool entry) {
    const auto number = call.orig_rax;
    if (entry) {
      if (number == SYS_rename) note_rename(text(call.rdi), text(call.rsi), false);
      if (number == SYS_renameat2)
        note_rename(text(call.rsi), text(call.r10), (call.r8 & RENAME_EXCHANGE) != 0);
      if (number == SYS_write) dirty_.insert(open_[static_cast<int>(call.rdi)]);
      return;
    }
    const auto result = static_cast<std::int64_t>(call.rax);
    if (std::exchange(is_renaming_, false) && result != 0) renames_.pop_back();
    if (number == SYS_openat && result >= 0) open_[static_cast<int>(result)] = text(call.rsi);
    if (number == SYS_fsync && result == 0) {
      const fs::path& path = open_[static_cast<int>(call.rdi)];
      dirty_.erase(path);
      unsafe_names_.erase(path);
      std::erase_if(renames_, [&](const Rename& x) { return x.to.parent_path() == path; });
      ++flushes_;
    }
  }

  /// Files of which not everything is on disk.
  const std::set<fs::path>& dirty() const { return dirty_; }
  bool removed_too_early() const { return removed_too_early_; }
  int flushes() const { return flushes_; }
  const std::vector<Rename>& renames() const { return renames_; }

 private:
  void note_rename(const fs::path& from, const fs::path& to, bool both) {
    is_renaming_ = true;
    renames_.push_back({from, to, both});
    if (to.filename().string().ends_with(".gone"))
      removed_too_early_ = removed_too_early_ || unsafe_names_.contains(to.parent_path());
    else
      unsafe_names_.insert(to.parent_path());
    std::set<fs::path> renamed;
    for (const fs::path& path : dirty_) {
      const auto within = path.lexically_relative(from);
      const bool moves = !within.empty() && within.native()[0] != '.';
      renamed.insert(path == from ? to : moves ? to / within : path);
    }
    dirty_ = std::move(renamed);
  }

  std::string text(unsigned long long address) const {
    std::string read(PATH_MAX, '\0');
    iovec local{read.data(), read.size()};
    iovec remote{reinterpret_cast<void*>(address), read.size()};
    // A string near the end of a mapping is read as far as it goes.
    while (::process_vm_readv(child_, &local, 1, &remote, 1, 0) < 0 && local.iov_len > 1)
      local.iov_len = remote.iov_len = local.iov_len / 2;
    return read.c_str();
  }

  pid_t child_;
  std::map<int, fs::path> open_;
  std::set<fs::path> dirty_, unsafe_names_;
  std::vector<Rename> renames_;
  bool is_renaming_ = false;
  bool removed_too_early_ = false;
  int flushes_ = 0;
};

struct Cut {
  bool ended = false;  ///< The child came to its end before.
  bool traced = true;
  std::set<fs::path> dirty;
  std::vector<Rename> renames;
  bool removed_too_early = false;
  int flushes = 0;
};

/// Takes names back that no flush had brought to disk, the newest first.
void lose_names(const std::vector<Rename>& renames) {
  for (auto rename = renames.rbegin(); rename != renames.rend(); ++rename) {
    if (!fs::exists(rename->to)) continue;  // It was removed since.
    if (rename->exchanged)
      ::renameat2(AT_FDCWD, rename->from.c_str(), AT_FDCWD, rename->to.c_str(), RENAME_EXCHANGE);
    else
      fs::rename(rename->to, rename->from);
  }
}

/// Takes bytes that no flush had brought to disk: all of a file, or its second half.
void lose_bytes(const std::set<fs::path>& dirty, bool all) {
  for (const fs::path& path : dirty)
    if (fs::is_regular_file(path)) fs::resize_file(path, all ? 0 : fs::file_size(path) / 2);
}

/// Lets a child save until its `stop`-th stop at a system call, and kills it there.
Cut cut_at(const fs::path& folder, int stop) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(77);
    ::raise(SIGSTOP);
    save_and_leave(folder);
  }
  Cut cut;
  Watcher watcher(child);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!WIFSTOPPED(status)) return {true, false, {}, {}, false, 0};
  ::ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD);
  bool entry = true;
  for (int stops = 0; stops < stop;) {
    ::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    ::waitpid(child, &status, 0);
    if (WIFEXITED(status)) {
      CHECK(WEXITSTATUS(status) == 0);
      cut.ended = true;
      break;
    }
    if (!WIFSTOPPED(status) || WSTOPSIG(status) != (SIGTRAP | 0x80)) continue;
    user_regs_struct call{};
    ::ptrace(PTRACE_GETREGS, child, nullptr, &call);
    watcher.note(call, std::exchange(entry, !entry));
    ++stops;
  }
  if (!cut.ended) {
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
  }
  cut.dirty = watcher.dirty();
  cut.renames = watcher.renames();
  cut.removed_too_early = watcher.removed_too_early();
  cut.flushes = watcher.flushes();
  return cut;
}

TEST_CASE("a save that is cut anywhere leaves a whole checkpoint, also without unflushed bytes",
          "[state][property]") {
  const ScratchFolder scratch;
  const fs::path before = scratch / "before", folder = scratch / "checkpoints";
  for (const std::int64_t step : {kOldest, kBefore})
    REQUIRE(write_example_checkpoint(before, step).ok());
  // What a cut takes: nothing, bytes, names that are not on disk, or both.
  const bool half_of_bytes = GENERATE(false, true), bytes = GENERATE(false, true),
             names = GENERATE(false, true);
  if (half_of_bytes && !bytes) return;
  // Somebody may have saved this step before.
  const bool again = GENERATE(false, true);
  if (again) REQUIRE(write_example_checkpoint(before, kSaved).ok());
  std::set<std::int64_t> found_steps;
  for (int stop = 1;; ++stop) {
    fs::remove_all(folder);
    fs::copy(before, folder, fs::copy_options::recursive);
    const Cut cut = cut_at(folder, stop);
    if (!cut.traced) SKIP("this machine lets nobody trace a process");
    CHECK_FALSE(cut.removed_too_early);
    if (names) lose_names(cut.renames);
    if (bytes) lose_bytes(cut.dirty, !half_of_bytes);
    const auto found = find_checkpoint(folder);
    REQUIRE(found.newest);
    const std::int64_t step = found.newest->manifest().progress.step;
    found_steps.insert(step);
    if (cut.ended) {
      CHECK(step == kSaved);
      CHECK(checkpoints_in(folder).size() == 2);
      CHECK(cut.dirty.empty());
      CHECK(cut.flushes >= 7);  // Two shares with their folder, job file, manifest, two folders.
      CHECK(stop > 50);
      break;
    }
    CHECK(step >= (again ? kSaved : kBefore));
    // The next job clears up, and saves.
    discard_leftovers(folder);
    for (const auto& entry : fs::directory_iterator(folder))
      CHECK(entry.path().filename().string().starts_with("step-"));
    if (stop % 16 == 0) CHECK(write_example_checkpoint(folder, kSaved + 2).ok());
  }
  CHECK((found_steps == (again ? std::set{kSaved} : std::set{kBefore, kSaved})));
}

}  // namespace
}  // namespace troupe::state
