// What reading a job file collects: problems, warnings, and where each key was given. Private to
// runtime/job.

#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/job/document.hpp"
#include "runtime/job/load_job.hpp"
#include "runtime/job/where_given.hpp"

namespace troupe::job {

/// Problems in the order of finding, and origins by key path.
struct Findings {
  std::vector<Error> problems;
  std::vector<Error> warnings;
  std::map<std::string, Origin> origins;
  std::string file;  ///< Stands in `where` for keys that were not given.
  Paths paths = Paths::must_exist;

  void add(Errc code, std::string where, std::string message, std::string fix) {
    problems.push_back({code, std::move(message), std::move(where), std::move(fix)});
  }
  /// A problem at a key: its own line, else that of the nearest enclosing table that was given.
  void add_at(const std::string& path, std::string message, std::string fix,
              Errc code = Errc::invalid_argument) {
    add(code, where(path), std::move(message), std::move(fix));
  }
  /// Something that was given at a key and has no effect.
  void warn_at(const std::string& path, std::string message, std::string fix) {
    warnings.push_back({Errc::invalid_argument, std::move(message), where(path), std::move(fix)});
  }
  /// Where `path` or the nearest table around it was given; the file if none was.
  std::string where(const std::string& path) const {
    const std::string given = where_given(origins, path);
    return given.empty() ? file : given;
  }
};

/// Several problems as one error of at most five lines; `rest` says how to see those beyond the
/// fourth. REQUIRES: not empty.
Error one_error(const std::vector<Error>& problems, const std::string& rest);

}  // namespace troupe::job
