// Log lines with time, node and level, to a console and (if asked) to a file.
//
// A cheap handle: copies share one log. Thread-safe. The library behind it stays out of this
// header.

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/observe/console.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::observe {

enum class LogLevel : std::uint8_t { debug, info, warning, error };

struct LoggerOptions {
  std::string node_name = {};       ///< `node 2`, `supervisor`; stands in every line.
  LogLevel level = LogLevel::info;  ///< Lower ones go nowhere.
  std::filesystem::path file = {};  ///< Appended to; empty: none.
};

class Logger {
 public:
  /// A logger that drops everything.
  Logger() = default;

  /// `console` must outlive all copies; nullptr: the file only.
  /// Errors: io_failed: the file cannot be opened.
  static Result<Logger> create(Console* console, const LoggerOptions& options);

  void log(LogLevel level, std::string_view text) const;
  void debug(std::string_view text) const { log(LogLevel::debug, text); }
  void info(std::string_view text) const { log(LogLevel::info, text); }
  void warning(std::string_view text) const { log(LogLevel::warning, text); }
  void error(std::string_view text) const { log(LogLevel::error, text); }
  /// Columns that time and node take before an ordinary line on the console.
  std::size_t prefix_columns() const;
  /// An Error, with its fix; one log entry of several lines.
  void error(const Error& error) const;

 private:
  struct Sinks;
  std::shared_ptr<Sinks> sinks_;
};

}  // namespace troupe::observe
