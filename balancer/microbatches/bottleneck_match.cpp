#include "balancer/microbatches/bottleneck_match.hpp"

#include <algorithm>

namespace troupe::balancer {

namespace {

// Matches the rows above a threshold by augmenting paths (depth first, one mark per search).
class Matcher {
 public:
  Matcher(const std::vector<std::vector<double>>& pair_cost, const std::vector<double>& lone_cost)
      : pair_cost_(pair_cost), lone_cost_(lone_cost) {}

  bool feasible(double threshold) {
    threshold_ = threshold;
    const std::size_t columns = pair_cost_.empty() ? 0 : pair_cost_.front().size();
    row_of_.assign(columns, -1);
    mark_.assign(columns, -1);
    for (std::size_t row = 0; row < lone_cost_.size(); ++row)
      if (lone_cost_[row] > threshold && !augment(static_cast<std::int32_t>(row))) return false;
    return true;
  }

  const std::vector<std::int32_t>& row_of() const { return row_of_; }

 private:
  struct Step {
    std::int32_t row;
    std::size_t next_column;
  };

  // An explicit stack: thousands of rows would be thousands of calls deep.
  bool augment(std::int32_t start) {
    std::vector<Step> path{{start, 0}};
    while (!path.empty()) {
      Step& step = path.back();
      const auto& costs = pair_cost_[static_cast<std::size_t>(step.row)];
      while (step.next_column < costs.size() &&
             (mark_[step.next_column] == start || costs[step.next_column] > threshold_))
        ++step.next_column;
      if (step.next_column == costs.size()) {
        path.pop_back();
        continue;
      }
      const std::size_t column = step.next_column++;
      mark_[column] = start;
      if (row_of_[column] < 0) return take(path);
      path.push_back({row_of_[column], 0});
    }
    return false;
  }

  bool take(const std::vector<Step>& path) {
    // Every step holds the column it moved on from; rows along the path shift to theirs.
    for (const auto& step : path) row_of_[step.next_column - 1] = step.row;
    return true;
  }

  const std::vector<std::vector<double>>& pair_cost_;
  const std::vector<double>& lone_cost_;
  double threshold_ = 0;
  std::vector<std::int32_t> row_of_;
  std::vector<std::int32_t> mark_;
};

}  // namespace

BottleneckMatching bottleneck_match(const std::vector<std::vector<double>>& pair_cost,
                                    const std::vector<double>& lone_cost) {
  BottleneckMatching result;
  result.partner.assign(lone_cost.size(), -1);
  result.critical.assign(lone_cost.size(), false);
  if (lone_cost.empty()) return result;
  std::vector<double> candidates(lone_cost);
  for (const auto& row : pair_cost) candidates.insert(candidates.end(), row.begin(), row.end());
  std::sort(candidates.begin(), candidates.end());
  Matcher matcher(pair_cost, lone_cost);
  // The largest lone cost is always feasible, so the search has an answer.
  const auto smallest =
      std::partition_point(candidates.begin(), candidates.end() - 1,
                           [&](double threshold) { return !matcher.feasible(threshold); });
  result.threshold = *smallest;
  matcher.feasible(result.threshold);
  std::vector<std::int32_t> free_columns;
  for (std::size_t column = 0; column < matcher.row_of().size(); ++column) {
    const auto row = matcher.row_of()[column];
    if (row < 0) {
      free_columns.push_back(static_cast<std::int32_t>(column));
    } else {
      result.partner[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(column);
      result.critical[static_cast<std::size_t>(row)] = true;
    }
  }
  auto next_free = free_columns.begin();
  for (auto& partner : result.partner)
    if (partner < 0) partner = *next_free++;
  return result;
}

}  // namespace troupe::balancer
