// What each key of a job file means, in a sentence or two. Private to runtime/job.

#pragma once

#include <span>
#include <string_view>

namespace troupe::job {

struct KeyMeaning {
  std::string_view path = {};  ///< As `KeyEntry::path`.
  std::string_view meaning = {};
  std::string_view preset = {};  ///< In words, where the default depends on other keys; else empty.
};

/// All there are.
std::span<const KeyMeaning> key_meanings();

/// Of a key; empty for keys of `[modules.NAME.config]`, which only their family knows.
KeyMeaning meaning_of(std::string_view path);

}  // namespace troupe::job
