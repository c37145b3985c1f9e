#include "balancer/corrections/sample_correction.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::balancer {

namespace {

// No shape is taken for faster than that: a part's odd measurement would else turn a weight to zero
// or below.
constexpr double kFactorMin = 0.1;

bool positive(double value) { return std::isfinite(value) && value > 0; }

}  // namespace

double SampleCorrection::factor(WorkShape shape) const {
  double factor = 1;
  if (const ShapeFactor* learned = factors_.find_known(factors_.filed(shape))) {
    factor = learned->factor;
  } else if (const auto median = medians_.find(shape.module); median != medians_.end()) {
    factor = median->second;
  }
  return factors_.deviates(factor) ? factor : 1;
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
    shares[factors_.filed(share.shape)] += share.predicted_ms;
    sum += share.predicted_ms;
  }
  double expected = 0, cubes = 0;
  for (auto& [shape, share] : shares) {
    share /= sum;
    const ShapeFactor* learned = factors_.find(shape);
    expected += share * (learned != nullptr ? learned->factor : 1);
    cubes += share * share * share;
  }
  double now_expected = 0;
  for (const auto& [shape, share] : shares) {
    auto& entry = factors_.entry(shape);
    const double gain = std::max(options_.blend_min, 1 / static_cast<double>(++entry.measurements));
    entry.factor =
        std::max(kFactorMin, entry.factor + gain * (ratio - expected) * share * share / cubes);
    now_expected += share * entry.factor;
  }
  return shares.empty() ? 1 : now_expected;
}

void SampleCorrection::restore(const ShapeFactors::Entries& factors) {
  factors_.restore(factors);
  end_iteration();
}

void SampleCorrection::end_iteration() {
  medians_.clear();
  for (auto& [module, list] : factors_.known_by_module()) {
    if (std::ssize(list) < options_.shapes_min) continue;
    const auto middle = list.begin() + std::ssize(list) / 2;
    std::nth_element(list.begin(), middle, list.end());
    medians_[module] = *middle;
  }
}

}  // namespace troupe::balancer
