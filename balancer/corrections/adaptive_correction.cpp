#include "balancer/corrections/adaptive_correction.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::balancer {

namespace {

bool positive(double value) { return std::isfinite(value) && value > 0; }

}  // namespace

double AdaptiveCorrection::corrected_ms(WorkShape shape, double predicted_ms) const {
  const ShapeFactor* learned = factors_.find_known(factors_.filed(shape));
  if (learned == nullptr || !factors_.deviates(learned->factor)) return predicted_ms;
  return predicted_ms * learned->factor;
}

void AdaptiveCorrection::set_tracking_cost(double throughput_without, double throughput_with) {
  const double cost = throughput_without - throughput_with;
  tracking_cost_ = positive(cost) ? cost : 0;
}

void AdaptiveCorrection::record(WorkShape shape, double predicted_ms, double measured_ms) {
  if (!tracking_ || shape.tokens <= 0 || !positive(predicted_ms) || !positive(measured_ms)) return;
  const auto tokens = static_cast<double>(shape.tokens);
  const double expected_ms = corrected_ms(shape, predicted_ms);
  // Noise would count for ever, though nothing can be learned from it.
  if (factors_.deviates(measured_ms / expected_ms))
    iteration_sum_ += std::abs(tokens / measured_ms - tokens / expected_ms);
  ++iteration_count_;
  auto& entry = factors_.entry(factors_.filed(shape));
  const double factor = measured_ms / predicted_ms;
  entry.factor = entry.measurements == 0
                     ? factor
                     : (1 - options_.blend) * entry.factor + options_.blend * factor;
  ++entry.measurements;
}

void AdaptiveCorrection::end_iteration() {
  if (!tracking_) return;
  if (iteration_count_ > 0) window_sum_ += iteration_sum_ / static_cast<double>(iteration_count_);
  iteration_sum_ = 0;
  iteration_count_ = 0;
  if (++window_count_ < options_.iterations) return;
  mean_benefit_ = window_sum_ / static_cast<double>(window_count_);
  tracking_ = mean_benefit_ > tracking_cost_;
  window_sum_ = 0;
  window_count_ = 0;
}

void AdaptiveCorrection::restore(const ShapeFactors::Entries& factors, const Watch& watch) {
  factors_.restore(factors);
  tracking_ = watch.tracking;
  iteration_sum_ = 0;
  iteration_count_ = 0;
  window_sum_ = watch.benefit;
  window_count_ = watch.iterations;
}

}  // namespace troupe::balancer
