// TOML text to a tree of values. Private to runtime/job; the only user of toml++.

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

}  // namespace troupe::job
