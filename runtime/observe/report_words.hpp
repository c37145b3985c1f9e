// Keys of metrics.jsonl in words, also those that nobody thought of.
//
// Pure.

#pragma once

#include <string>

namespace troupe::observe {

/// What a column is called, and what its values are multiplied by to be in `unit`.
struct KeyWords {
  std::string text;  ///< `Waited for data`.
  std::string unit;  ///< `ms`, `MB`, `%`; empty: none.
  double factor = 1;
};

/// Of a key of `metrics_line`, what it stands for. Of any other, the key itself read as words, the
/// unit taken from its end: `peak_activation_bytes` is `Peak activation` in MB.
KeyWords key_words(const std::string& key);

}  // namespace troupe::observe
