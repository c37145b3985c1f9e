// One planner or balancer as a function from JSON to JSON: what `troupe solve PROBLEM` runs.
//
// Pure apart from measuring `compute_ms`. Names, fields and units are those of the interface page;
// planning problems live in planning_problems.cpp (costs, templates, reconfiguration) and
// schedule_problems.cpp (layout, schedules), balancing problems in balancing_problems.cpp.

#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/vocabulary/result.hpp"

namespace troupe::app {

using Json = nlohmann::ordered_json;

/// A problem of `troupe solve`.
struct Problem {
  std::string name;     ///< As typed: `post-balance`.
  std::string summary;  ///< One line for `--list`.
  std::string schema;   ///< Printed by `--schema`: each input field with type, unit and range.
  /// Solves one input. Does not add `compute_ms`; `solve` does.
  std::function<Result<Json>(const Json& input)> run;
};

/// All problems, in the order of the interface page.
std::vector<Problem> all_problems();

/// Their parts; `all_problems` joins them.
std::vector<Problem> planning_problems();
std::vector<Problem> schedule_problems();
std::vector<Problem> balancing_problems();

/// Parses `text`, runs the problem of this name and adds `compute_ms`.
///
/// Errors:
/// - not_found: no such problem; the message names the nearest one.
/// - invalid_argument: not JSON (with line and column), or an input the problem refuses.
/// - infeasible: as the problem says.
Result<Json> solve(const std::string& problem, const std::string& text);

/// Reads fields of a JSON object and reports what is wrong with path, expected type and found
/// value.
///
/// Use: `Reader in{json, "input"}; auto k = in.integer("microbatches", 1, kMax);
/// if (!in.ok()) return in.error();`. The first problem is kept; later reads return defaults.
class Reader {
 public:
  Reader(const Json& object, std::string path);

  bool ok() const { return !error_.has_value(); }
  const Error& error() const { return *error_; }
  bool has(const std::string& key) const;
  /// True if `key` is there and holds an array.
  bool is_array(const std::string& key) const;

  /// A finite number in [minimum, maximum]; NaN and infinities are refused.
  double number(const std::string& key, double minimum, double maximum);
  double number_or(const std::string& key, double fallback, double minimum, double maximum);
  std::int64_t integer(const std::string& key, std::int64_t minimum, std::int64_t maximum);
  std::int64_t integer_or(const std::string& key, std::int64_t fallback, std::int64_t minimum,
                          std::int64_t maximum);
  std::string text(const std::string& key);
  std::string text_or(const std::string& key, const std::string& fallback);
  bool boolean_or(const std::string& key, bool fallback);
  /// Array of finite numbers in [minimum, maximum].
  std::vector<double> numbers(const std::string& key, double minimum, double maximum);
  std::vector<std::int64_t> integers(const std::string& key, std::int64_t minimum,
                                     std::int64_t maximum);
  /// An array or object below `key`; an empty one after an error.
  const Json& array(const std::string& key);
  const Json& object(const std::string& key);
  /// A reader of `array(key)[index]`, whose path names both.
  Reader element(const std::string& key, std::size_t index);
  /// Takes over the first error of a nested reader.
  void absorb(const Reader& nested);
  /// Refuses keys that are not in this list, naming the nearest known one.
  void only(const std::vector<std::string>& known);
  void fail(std::string key, std::string message, std::string fix = {});

 private:
  const Json* find(const std::string& key, const char* expected);

  const Json* object_;
  std::string path_;
  std::optional<Error> error_;
};

}  // namespace troupe::app
