#include "runtime/job/findings.hpp"

#include <algorithm>

namespace troupe::job {

Error one_error(const std::vector<Error>& problems, const std::string& rest) {
  if (problems.size() == 1) return problems.front();
  // One line each, four of them at most: an error message has five lines.
  constexpr std::size_t kShown = 4;
  Error all{problems.front().code, {}, {}, {}};
  for (std::size_t i = 0; i < std::min(problems.size(), kShown); ++i) {
    const auto& problem = problems[i];
    all.message +=
        (i == 0 ? "" : "\n") + problem.where + ": " + problem.message + "; " + problem.fix;
  }
  if (problems.size() > kShown)
    all.message += "\n" + std::to_string(problems.size() - kShown) + " more problems: " + rest;
  return all;
}

}  // namespace troupe::job
