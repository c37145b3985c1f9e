// Every key of a job file for people who look one up: what it takes, its default, what it means.
//
// Names, ranges and defaults come from where job files are read by (fields.hpp), so that they
// cannot be wrong; the sentences stand in key_meanings.cpp. Knows families, policies and formats
// that are there when it is asked, plug-ins that were loaded among them.

#pragma once

#include <string>
#include <vector>

namespace troupe::job {

/// A key of the job file.
struct KeyEntry {
  std::string section;  ///< Its table as written: `[train]`, `[[data.sources]]`; empty at the top.
  std::string path;  ///< `train.steps`; `NAME` stands for a module's name, `[]` for any of a list.
  std::string preset;   ///< Its default as TOML, or in words; empty where there is none.
  std::string takes;    ///< `integer, 1 to 1024`.
  std::string meaning;  ///< Sentences; empty where the family says what it is.

  /// Its last word: `steps`.
  std::string key() const;
};

/// Every key in the order of the job file's sections. Keys of `[modules.NAME.config]` come once per
/// family that has them, under `[modules.NAME.config] of llama`.
std::vector<KeyEntry> key_list();

}  // namespace troupe::job
