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

/// What a figure of one module group's replicas (`PhaseFigures`) is of.
struct PhaseKey {
  std::string group;  ///< `vision+audio`; empty: the key is none of these.
  std::string name;   ///< `imbalance_planned`.
};

/// Takes `phases.GROUP.NAME` apart.
PhaseKey phase_of(const std::string& key);

}  // namespace troupe::observe
