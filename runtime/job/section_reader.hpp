// Fills the members of one section from one table, and reports what does not fit. Private to
// runtime/job; the visitor that fields.hpp is walked with when reading.

#pragma once

#include <concepts>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/job/document.hpp"
#include "runtime/job/fields.hpp"
#include "runtime/job/findings.hpp"

namespace troupe::job {

/// One use per table. A key that is missing or wrong leaves its member as it was.
class SectionReader {
 public:
  /// `value`: the table, or nullptr where the file has none. `path`: as in messages, `data`.
  SectionReader(const Value* value, std::string path, Findings& findings);

  void flag(const char* key, bool& x);
  template <std::integral T>
  void integer(const char* key, T& x, Range<std::int64_t> range) {
    if (const auto read = read_integer(key, range)) x = static_cast<T>(*read);
  }
  template <std::integral T>
  void integer(const char* key, std::optional<T>& x, Range<std::int64_t> range) {
    if (const auto read = read_integer(key, range)) x = static_cast<T>(*read);
  }
  template <class T>  // double or std::optional<double>
  void number(const char* key, T& x, Range<double> range) {
    if (const auto read = read_number(key, range)) x = *read;
  }
  /// A list of integers, each once, which becomes ascending; an empty one is a problem.
  void numbers(const char* key, std::vector<std::int32_t>& x, Range<std::int64_t> range);
  void pair(const char* key, double& first, double& second, Range<double> range);
  void text(const char* key, std::string& x);
  /// A text out of a list.
  template <class Words>
  void word(const char* key, std::string& x, const Words& words) {
    read_word(key, x, {words.begin(), words.end()});
  }
  template <class Enum, class Names>
  void choice(const char* key, Enum& x, const Names& names) {
    std::vector<std::string> words;
    for (const auto& [name, value] : names) words.emplace_back(name);
    std::string found;
    if (!read_word(key, found, words)) return;
    for (const auto& [name, value] : names)
      if (name == found) x = value;
  }
  /// A file or folder that must exist (the caller checks which): found beside the file that names
  /// it or in the current directory, and made absolute. One of another machine is left as it is.
  void input_path(const char* key, std::filesystem::path& x);
  void output_path(const char* key, std::filesystem::path& x);
  /// From here on input paths may name what is not on this machine.
  void allow_missing_paths() { paths_may_be_missing_ = true; }
  /// A list of them.
  void input_paths(const char* key, std::vector<std::filesystem::path>& x);
  /// Exactly one of the keys of kDurations.
  void duration(Duration& x);

  /// The value at `key`, noted as known and given; nullptr where it is not there.
  const Value* take(const char* key);
  /// A list, or nullptr; anything else is a problem.
  const Value::Array* list(const char* key);
  /// Members that no call above asked for; they are then known.
  std::vector<const Member*> rest();
  /// Reports the members that no call above asked for.
  void finish();

  bool is_given() const { return value_ != nullptr; }
  /// Path of a key of this table.
  std::string at(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }

 private:
  std::optional<std::int64_t> read_integer(const char* key, Range<std::int64_t> range);
  std::optional<double> read_number(const char* key, Range<double> range);
  std::optional<double> as_number(const Value& value, const std::string& path, Range<double> range);
  std::filesystem::path found_path(const Value& value, const std::string& written,
                                   const std::string& key);
  bool read_word(const char* key, std::string& x, const std::vector<std::string>& words);
  void wrong_type(const char* key, const Value& value, const std::string& expected);

  const Value* value_;
  std::string path_;
  Findings& findings_;
  std::vector<std::string> known_;
  bool paths_may_be_missing_ = false;
};

}  // namespace troupe::job
