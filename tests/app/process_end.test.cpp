#include "app/signals.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <iostream>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

#include "app/crash.hpp"
#include "app/descriptors.hpp"

namespace troupe::app {
namespace {

using std::chrono::milliseconds;

constexpr EndLimits kLimits{milliseconds(400), milliseconds(50)};

/// Runs `work` in a process of its own; returns its exit code, or 128 + the signal that ended it.
template <class Work>
int exit_code_of(Work work) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(work());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Places in this process's table of open files.
std::int64_t places_for_files() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (std::int64_t places = 0; word == "FDSize:" && status >> places) return places;
  return 0;
}

TEST_CASE("the table of open files has room for all that may be opened", "[app]") {
  CHECK(exit_code_of([] {
          const rlimit few{1000, 1000};
          if (setrlimit(RLIMIT_NOFILE, &few) != 0 || places_for_files() >= 1000) return 2;
          make_room_for_descriptors();
          // All of it is free still.
          return places_for_files() >= 1000 && fcntl(999, F_GETFD) == -1 ? 0 : 1;
        }) == 0);
}

bool never() { return false; }
EndLimits limits() { return kLimits; }
EndLimits slow() { return {std::chrono::minutes(1), milliseconds(50)}; }

milliseconds since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begin);
}

TEST_CASE("a signal ends a process whose supervisor does not", "[app]") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const int code = exit_code_of([signal] {
      block_signals();
      kill(getpid(), signal);
      const auto begin = std::chrono::steady_clock::now();
      int taken = 0;
      const int unheard = take_signals_until(never, {}, limits, [&](int seen) { taken = seen; });
      return unheard == signal && taken == signal && since(begin) >= kLimits.first ? 7 : 1;
    });
    CHECK(code == 7);
  }
}

TEST_CASE("a process that is given more time after the signal is ended when that is over",
          "[app]") {
  const int code = exit_code_of([] {
    block_signals();
    kill(getpid(), SIGTERM);
    const auto begin = std::chrono::steady_clock::now();
    bool has_more = false;
    const auto growing = [&] {
      return EndLimits{(has_more ? 3 : 1) * kLimits.first, kLimits.second};
    };
    const int unheard = take_signals_until(never, {}, growing, [&](int) { has_more = true; });
    return unheard == SIGTERM && since(begin) >= 3 * kLimits.first ? 7 : 1;
  });
  CHECK(code == 7);
}

TEST_CASE("a second signal ends it sooner", "[app]") {
  const int code = exit_code_of([] {
    block_signals();
    kill(getpid(), SIGINT);
    const auto begin = std::chrono::steady_clock::now();
    int taken = 0;
    const int unheard = take_signals_until(never, {}, slow, [&](int) {
      if (++taken > 1) return;
      std::thread([] {
        std::this_thread::sleep_for(kSameSignal + milliseconds(100));
        kill(getpid(), SIGTERM);
      }).detach();
    });
    return unheard == SIGTERM && taken == 2 && since(begin) < std::chrono::seconds(10) ? 7 : 1;
  });
  CHECK(code == 7);
}

TEST_CASE("two signals at once, as launchers send them to a group and to each, are one", "[app]") {
  const int code = exit_code_of([] {
    block_signals();
    for (const int signal : {SIGINT, SIGTERM}) kill(getpid(), signal);
    const auto begin = std::chrono::steady_clock::now();
    int taken = 0;
    const int unheard = take_signals_until(never, {}, limits, [&](int) { ++taken; });
    return unheard != 0 && taken == 1 && since(begin) >= kLimits.first ? 7 : 1;
  });
  CHECK(code == 7);
}

TEST_CASE("what ends in time is not ended by force, and hears of its children", "[app]") {
  const int code = exit_code_of([] {
    block_signals({SIGCHLD});
    std::set<int> seen;
    kill(getpid(), SIGCHLD);
    kill(getpid(), SIGTERM);
    const int unheard = take_signals_until([&] { return seen.size() == 2; }, {SIGCHLD}, limits,
                                           [&](int signal) { seen.insert(signal); });
    return unheard == 0 && seen == std::set{SIGCHLD, SIGTERM} ? 7 : 1;
  });
  CHECK(code == 7);
}

TEST_CASE("under nohup a closed terminal does not end a process", "[app]") {
  const int code = exit_code_of([] {
    std::signal(SIGHUP, SIG_IGN);
    block_signals();
    kill(getpid(), SIGHUP);
    return wait_for_signal({}, milliseconds(100)) == 0 && !ends_process(SIGHUP) ? 7 : 1;
  });
  CHECK(code == 7);
}

TEST_CASE("a reader of the output that leaves does not end a process", "[app]") {
  const int code = exit_code_of([] {
    block_signals();
    int ends[2];
    if (pipe(ends) != 0) return 1;
    close(ends[0]);
    return write(ends[1], "x", 1) < 0 ? 7 : 1;
  });
  CHECK(code == 7);
}

/// Makes stdout and stderr of this process one pipe that is full and that nobody reads.
void write_where_nobody_reads() {
  int ends[2];
  if (pipe2(ends, O_NONBLOCK) != 0) _exit(1);
  const std::string block(4096, 'x');
  while (write(ends[1], block.data(), block.size()) > 0) continue;
  while (write(ends[1], "x", 1) > 0) continue;
  fcntl(ends[1], F_SETFL, 0);
  for (const int own : {STDOUT_FILENO, STDERR_FILENO}) dup2(ends[1], own);
}

TEST_CASE("a process whose words nobody reads ends by a signal, and gives back what it held",
          "[app]") {
  int given_back[2];
  REQUIRE(pipe(given_back) == 0);
  const int code = exit_code_of([&] {
    block_signals();
    write_where_nobody_reads();
    before_leaving([&] { write(given_back[1], "x", 1); });
    const EndOnSignal guard("while it wrote");
    std::thread([] { std::cout << std::string(100'000, 'x') << std::endl; }).detach();
    std::this_thread::sleep_for(milliseconds(100));
    kill(getpid(), SIGTERM);
    std::this_thread::sleep_for(std::chrono::seconds(15));
    return 1;
  });
  CHECK(code == 128 + SIGTERM);
  close(given_back[1]);
  char byte = 0;
  CHECK(read(given_back[0], &byte, 1) == 1);
  close(given_back[0]);
}

TEST_CASE("last words that nobody reads hold no process up that a signal is to end", "[app]") {
  // Not through a stream, which a reporter of tests may keep for itself.
  const auto blocked = [] {
    const std::string words(100'000, 'x');
    if (write(STDERR_FILENO, words.data(), words.size()) < 0) _exit(1);
  };
  const int code = exit_code_of([&] {
    block_signals();
    write_where_nobody_reads();
    say_last(75, SIGTERM, {}, blocked);
    return 1;
  });
  CHECK(code == 75);
  const int later = exit_code_of([&] {
    block_signals();
    write_where_nobody_reads();
    std::thread([] {
      std::this_thread::sleep_for(milliseconds(100));
      kill(getpid(), SIGTERM);
    }).detach();
    say_last(0, 0, {}, blocked);
    return 1;
  });
  CHECK(later == 128 + SIGTERM);
}

/// What a process of its own that calls `work` writes on stderr.
template <class Work>
std::string told_by(Work work) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  exit_code_of([&] {
    dup2(ends[1], STDERR_FILENO);
    return work();
  });
  close(ends[1]);
  std::string text(4096, ' ');
  const auto bytes = read(ends[0], text.data(), text.size());
  close(ends[0]);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));
  return text;
}

int throw_uncaught() {
  std::signal(SIGABRT, SIG_DFL);  // Not Catch2's.
  report_crashes();
  std::thread([] { throw std::runtime_error("no such thing\nframe #0"); }).join();
  return 0;
}

TEST_CASE("an exception that nobody catches is told in two lines", "[app]") {
  CHECK(exit_code_of(throw_uncaught) == 128 + SIGABRT);
  const auto told = told_by(throw_uncaught);
  CHECK(told.starts_with("troupe: defect in process "));
  CHECK(told.find(": no such thing\n  fix: ") != std::string::npos);
  CHECK(std::ranges::count(told, '\n') == 2);
}

}  // namespace
}  // namespace troupe::app
