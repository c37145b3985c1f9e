// A job file as a tree of values, each knowing where it was written. Private to runtime/job.
//
// Pure values; knows neither TOML nor the keys of a job.

#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/vocabulary/result.hpp"

namespace troupe::job {

/// Parts of a key (`a.b.c` has three): values stand in one another as deep, and so do the calls
/// that take them apart.
inline constexpr std::size_t kKeyPartsMax = 64;

/// A file or the command line: what messages call it and where relative paths start.
struct Source {
  std::string name;
  std::filesystem::path folder;
};

struct Member;

/// A value of a job file. Tables keep the order in which their keys were written.
struct Value {
  using Array = std::vector<Value>;
  using Table = std::vector<Member>;

  std::variant<bool, std::int64_t, double, std::string, Array, Table> data;
  std::shared_ptr<const Source> source;  ///< Never null.
  std::int32_t line = 0;                 ///< From 1; 0 on the command line.
  std::string typed;                     ///< As typed on the command line; empty in files.

  /// `job.toml:14` or `command line`.
  std::string where() const;
  /// `the string "4"`, `the integer 4`, `a table`: what was found, for messages.
  std::string shown() const;

  const Table* table() const { return std::get_if<Table>(&data); }
  Table* table() { return std::get_if<Table>(&data); }
  const Array* array() const { return std::get_if<Array>(&data); }
  Array* array() { return std::get_if<Array>(&data); }
  /// The member of this key; nullptr where there is none or this is no table.
  const Value* find(std::string_view key) const;
  Value* find(std::string_view key);
};

/// One `key = value`.
struct Member {
  std::string key;
  Value value;
};

/// Lays `over` on `base`: tables merge key by key, everything else is replaced. Where `over` says
/// how long to train, what `base` said about it goes, so that steps can replace epochs.
void merge(Value& base, const Value& over);

/// Puts `value` at a path such as `train.steps` or `data.sources[0].json` (also
/// `data.sources.0.json`); tables on the way are made.
///
/// Errors: invalid_argument: an empty path or segment, an index outside of an array, or a path
/// through something that is no table.
Status set(Value& root, const std::string& path, const Value& value);

}  // namespace troupe::job
