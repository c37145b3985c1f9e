#include "balancer/sample_correction.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::balancer {

namespace {

// No shape is taken for faster than that: a part's odd measurement would else turn a weight to zero
// or below.
constexpr double kFactorMin = 0.1;

bool positive(double value) { return std::isfinite(value) && value > 0; }

}  // namespace

WorkShape SampleCorrection::filed(WorkShape shape) const {
  const TokenCount step = std::max<TokenCount>(1, options_.granularity);
  return {shape.module, (shape.tokens + step - 1) / step * step};
}

double SampleCorrection::factor(WorkShape shape) const {
  double factor = 1;
  const auto found = entries_.find(filed(shape));
  if (found != entries_.end() && known(found->second)) {
    factor = found->second.factor;
  } else if (const auto median = medians_.find(shape.module); median != medians_.end()) {
    factor = median->second;
  }
  return deviates(factor) ? factor : 1;
}

bool SampleCorrection::deviates(double factor) const {
  return std::abs(factor - 1) > options_.deviation_min;
}

// A normalised least-mean-squares step: the change of the factors that would explain the part, of
// which each shape takes what its gain allows. It goes with the square of a share (plain least
// squares: with the share), as what small shares are blamed for hardly shows in other parts again.
double SampleCorrection::record(std::span<const ShapeShare> part, double ratio) {
  if (!positive(ratio)) return 1;
  std::map<WorkShape, double> shares;
  double sum = 0;
  for (const auto& share : part) {
    if (share.shape.tokens <= 0 || !positive(share.predicted_ms)) continue;
    shares[filed(share.shape)] += share.predicted_ms;
    sum += share.predicted_ms;
  }
  double expected = 0, cubes = 0;
  for (auto& [shape, share] : shares) {
    share /= sum;
    const auto entry = entries_.find(shape);
    expected += share * (entry != entries_.end() ? entry->second.factor : 1);
    cubes += share * share * share;
  }
  double now_expected = 0;
  for (const auto& [shape, share] : shares) {
    if (entries_.size() >= options_.shapes_max && !entries_.contains(shape)) make_room();
    auto& entry = entries_[shape];
    const double gain = std::max(options_.blend_min, 1 / static_cast<double>(++entry.measurements));
    entry.factor =
        std::max(kFactorMin, entry.factor + gain * (ratio - expected) * share * share / cubes);
    now_expected += share * entry.factor;
  }
  return shares.empty() ? 1 : now_expected;
}

void SampleCorrection::make_room() {
  const auto least = std::min_element(entries_.begin(), entries_.end(), [](auto& a, auto& b) {
    return std::abs(a.second.factor - 1) < std::abs(b.second.factor - 1);
  });
  if (least != entries_.end()) entries_.erase(least);
}

std::size_t SampleCorrection::corrected_shapes() const {
  return static_cast<std::size_t>(std::count_if(
      entries_.begin(), entries_.end(),
      [&](const auto& entry) { return known(entry.second) && deviates(entry.second.factor); }));
}

void SampleCorrection::end_iteration() {
  std::map<std::int32_t, std::vector<double>> factors;
  for (const auto& [shape, entry] : entries_)
    if (known(entry)) factors[shape.module].push_back(entry.factor);
  medians_.clear();
  for (auto& [module, list] : factors) {
    if (std::ssize(list) < options_.shapes_min) continue;
    const auto middle = list.begin() + std::ssize(list) / 2;
    std::nth_element(list.begin(), middle, list.end());
    medians_[module] = *middle;
  }
}

}  // namespace troupe::balancer
