// How commands speak: results on stdout, problems on stderr in at most five lines, exit codes.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/vocabulary/result.hpp"

namespace troupe::app {

/// Exit codes that are not those of an Error (see `exit_code(const Error&)`).
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;
inline constexpr int kResumable = 75;

/// Prints the error on stderr, cut to five lines, and returns its exit code.
int report(const Error& error);

/// Error for a wrong command line.
Error usage_error(std::string message, std::string fix);

/// The text in lines of `columns` at most; all but the first begin with `indent` blanks, and the
/// first has so many columns less. A word that is longer has a line of its own.
std::string wrapped(const std::string& text, std::size_t indent, std::size_t columns = 80);

/// (4, "node") as `4 nodes`, (1, "node") as `1 node`.
std::string counted(std::int64_t count, const std::string& noun);

/// 558128 as `558,128`.
std::string with_commas(std::int64_t number);

/// 1234567 as `1.23 M`; below 1000 as it is.
std::string with_unit(std::int64_t number);

/// True if stdout is a terminal that understands colours (and NO_COLOR is not set).
bool stdout_has_colours();

}  // namespace troupe::app
