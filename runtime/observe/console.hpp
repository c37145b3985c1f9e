// The one owner of a terminal (or pipe): whole lines, and a status that stays below them.
//
// Thread-safe: log lines of any thread and the progress bar never mix. Lines are single writes, so
// that several processes may share a terminal. Escape sequences are written to terminals only.

#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace troupe::observe {

struct ConsoleOptions {
  int file = 2;           ///< Descriptor; not owned.
  bool terminal = false;  ///< The status line is drawn; false: it is dropped.
  bool colour = false;    ///< Warnings and errors stand out.
};

/// Options for a descriptor: terminal unless TERM is `dumb`, colour unless NO_COLOR is set to
/// something. Reads the environment.
ConsoleOptions detect_console(int file);

class Console {
 public:
  explicit Console(ConsoleOptions options) : options_(options) {}
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;
  /// Removes the status, so that the shell's prompt starts on a clean line.
  ~Console() { status(""); }

  /// Writes text and a newline above the status. Failures to write are ignored: there is nobody
  /// left to tell.
  void line(std::string_view text);

  /// Replaces the status; empty removes it. Cut to the width of the terminal.
  void status(std::string_view text);

  const ConsoleOptions& options() const { return options_; }

  /// Columns: the terminal's, or 80.
  std::int32_t width() const;

 private:
  const ConsoleOptions options_;
  std::mutex mutex_;
  std::string status_;  // As drawn.
};

}  // namespace troupe::observe
