// TOML text to a tree of values, and single values to text. Private to runtime/job; the only user
// of toml++.

#pragma once

#include <memory>
#include <string>

#include "runtime/job/document.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::job {

/// Parses a whole file. Dates and times, which no key takes, become strings.
///
/// Errors:
/// - invalid_argument: not TOML, characters beyond ASCII outside of strings and comments, or a key
///   of more than `kKeyPartsMax` parts; with file and line.
Result<Value> parse_toml(const std::string& text, const std::shared_ptr<const Source>& source);

/// Parses the value of `key.path=value`: TOML where it is TOML, otherwise the text itself.
///
/// Errors:
/// - invalid_argument: starts like a list, table or quoted string and is none.
Result<Value> parse_override(const std::string& text, const std::shared_ptr<const Source>& source);

/// The text in quotes; what would end it, and control characters, escaped.
std::string toml_string(const std::string& text);

/// The shortest number that reads back as the same one, with a point or exponent.
std::string toml_number(double number);

}  // namespace troupe::job
