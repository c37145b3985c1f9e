#include "scheduler/layout/partition.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <string>

namespace troupe::scheduler {

namespace {

// One greedy pass under a bound: every stage takes layers while it stays within the bound and
// leaves one layer for each stage after it.
struct Probe {
  bool fits = false;
  double max = 0;         ///< Slowest stage; meaningful if it fits.
  double next_bound = 0;  ///< Least bound that changes this pass; meaningful if it does not fit.
};

Probe probe(std::span<const double> costs, std::int64_t stage_count, double bound,
            std::vector<std::int32_t>* cuts = nullptr) {
  Probe result;
  result.next_bound = std::numeric_limits<double>::infinity();
  const auto layer_count = static_cast<std::int64_t>(costs.size());
  std::int64_t layer = 0;
  if (cuts) cuts->assign(1, 0);
  for (std::int64_t stage = 0; stage < stage_count; ++stage) {
    const std::int64_t last = layer_count - (stage_count - stage - 1);
    double sum = costs[static_cast<std::size_t>(layer++)];
    if (sum > bound) return result.next_bound = std::min(result.next_bound, sum), result;
    for (; layer < last; ++layer) {
      const double longer = sum + costs[static_cast<std::size_t>(layer)];
      if (longer > bound) {
        result.next_bound = std::min(result.next_bound, longer);
        break;
      }
      sum = longer;
    }
    result.max = std::max(result.max, sum);
    if (cuts) cuts->push_back(static_cast<std::int32_t>(layer));
  }
  result.fits = layer == layer_count;
  return result;
}

std::optional<Error> check(std::span<const double> costs, std::int64_t stage_count) {
  for (std::size_t i = 0; i < costs.size(); ++i)
    if (!(costs[i] >= 0) || !std::isfinite(costs[i]))
      return Error{Errc::invalid_argument,
                   "the cost of layer " + std::to_string(i) + " is " + std::to_string(costs[i]) +
                       ", expected a finite number >= 0",
                   "costs[" + std::to_string(i) + "]",
                   {}};
  const auto layer_count = static_cast<std::int64_t>(costs.size());
  if (layer_count == 0)
    return Error{Errc::infeasible, "there are no layers to partition", "costs",
                 "give the cost of at least one layer"};
  if (stage_count < 1 || stage_count > layer_count)
    return Error{
        Errc::infeasible,
        std::to_string(layer_count) + " layers cannot form " + std::to_string(stage_count) +
            " stages of at least one layer each",
        "stages",
        "nearest choice: " + std::to_string(stage_count < 1 ? 1 : layer_count) + " stages"};
  return std::nullopt;
}

}  // namespace

Result<Partition> partition(std::span<const double> costs, std::int64_t stage_count) {
  if (auto error = check(costs, stage_count)) return *error;
  // The answer lies in [low, high]; `high` is always reached by some partition. A pass that fits
  // lowers `high` to what it used, one that does not raises `low` to the next sum that matters,
  // so the search ends on the exact value rather than near it.
  double high = probe(costs, stage_count, std::numeric_limits<double>::infinity()).max;
  double low = std::max(*std::max_element(costs.begin(), costs.end()),
                        std::accumulate(costs.begin(), costs.end(), 0.0) /
                            static_cast<double>(stage_count) * (1 - 1e-9));
  while (low < high) {
    double bound = low + (high - low) / 2;
    if (!(bound < high)) bound = low;
    const Probe result = probe(costs, stage_count, bound);
    if (result.fits)
      high = result.max;
    else
      low = result.next_bound;
  }
  Partition best;
  best.max = probe(costs, stage_count, high, &best.cuts).max;
  return best;
}

}  // namespace troupe::scheduler
