#include "app/crash.hpp"

#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

#include "runtime/vocabulary/first_line.hpp"
#include "runtime/vocabulary/user_code.hpp"
#include "transport/registry.hpp"

namespace troupe::app {

namespace {

struct Crash {
  int signal;
  const char* name;
  std::string text;  ///< Made before: a handler may not.
};

std::array<Crash, 4> crashes{{{SIGSEGV, "an invalid memory address", {}},
                              {SIGBUS, "memory or a mapped file that is gone", {}},
                              {SIGILL, "an instruction that this processor does not know", {}},
                              {SIGFPE, "a division by zero", {}}}};

constexpr const char* kFix = "\n  fix: please report it with the command line and the log\n";

void write_all(const std::string& text) {
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
}

/// Async-signal-safe. The signal's old handling is back already (SA_RESETHAND): raised again, it
/// ends the process when this returns.
void on_crash(int signal) {
  for (const Crash& crash : crashes)
    if (crash.signal == signal) write_all(crash.text);
  raise(signal);
}

void on_terminate() {
  std::string what = "no exception is there";
  try {
    if (const auto exception = std::current_exception()) std::rethrow_exception(exception);
  } catch (const UserFault& fault) {
    write_all("troupe: process " + std::to_string(getpid()) + " ends: " + first_line(fault.what()) +
              "\n  fix: " + fault.error().fix + "\n");
    std::abort();
  } catch (const std::exception& error) {
    what = error.what();
  } catch (...) {
    what = "an exception of unknown type";
  }
  write_all("troupe: defect in process " + std::to_string(getpid()) + ": " + first_line(what) +
            kFix);
  std::abort();
}

constexpr bool is_sanitized() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#else
  return false;
#endif
}

}  // namespace

void report_crashes() {
  std::set_terminate(on_terminate);
  transport::leave_signals_alone();
  if (is_sanitized()) return;
  for (Crash& crash : crashes) {
    crash.text = "troupe: defect: process " + std::to_string(getpid()) + " crashed (" + crash.name +
                 ", signal " + std::to_string(crash.signal) + ")" + kFix;
    struct sigaction action {};
    action.sa_handler = on_crash;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(crash.signal, &action, nullptr);
  }
}

}  // namespace troupe::app
