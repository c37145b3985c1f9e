// What one check of `troupe doctor` says, and all of them together. Values; pure.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::app {

/// How much a finding matters: a `problem` stops a job, a `warning` costs time or is a risk.
enum class Level : std::uint8_t { ok, warning, problem };

struct Finding {
  std::string name;  ///< Of the check; the same in every run: `shared memory`.
  Level level = Level::ok;
  std::string found;
  std::string fix;  ///< Empty where `level` is ok.

  friend bool operator==(const Finding&, const Finding&) = default;
};

/// `ok`, `warning` or `problem`.
std::string_view to_string(Level level);

Finding fine(std::string name, std::string found);
Finding warning(std::string name, std::string found, std::string fix);
Finding problem(std::string name, std::string found, std::string fix);

/// A problem in the words of an error.
Finding problem(std::string name, const Error& error);

std::int64_t count_of(const std::vector<Finding>& findings, Level level);

/// One sentence; `subject` is what may be able to run: `Troupe`, or a job.
std::string verdict(const std::vector<Finding>& findings, const std::string& subject);

/// 24.6 GiB; below a GiB in MiB, below a MiB in KiB.
std::string size_words(Bytes bytes);

}  // namespace troupe::app
