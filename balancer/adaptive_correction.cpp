#include "balancer/adaptive_correction.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::balancer {

namespace {

bool positive(double value) { return std::isfinite(value) && value > 0; }

}  // namespace

WorkShape AdaptiveCorrection::filed(WorkShape shape) const {
  const TokenCount step = std::max<TokenCount>(1, options_.granularity);
  return {shape.module, (shape.tokens + step - 1) / step * step};
}

bool AdaptiveCorrection::deviates(double factor) const {
  return std::abs(factor - 1) > options_.deviation_min;
}

double AdaptiveCorrection::corrected_ms(WorkShape shape, double predicted_ms) const {
  const auto found = entries_.find(filed(shape));
  if (found == entries_.end() || !known(found->second)) return predicted_ms;
  const double factor = found->second.factor;
  return deviates(factor) ? predicted_ms * factor : predicted_ms;
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
  if (std::abs(measured_ms / expected_ms - 1) > options_.deviation_min)
    iteration_sum_ += std::abs(tokens / measured_ms - tokens / expected_ms);
  ++iteration_count_;
  const auto key = filed(shape);
  if (entries_.size() >= options_.shapes_max && !entries_.contains(key)) make_room();
  auto& entry = entries_[key];
  const double factor = measured_ms / predicted_ms;
  entry.factor = entry.measurements == 0
                     ? factor
                     : (1 - options_.blend) * entry.factor + options_.blend * factor;
  ++entry.measurements;
}

void AdaptiveCorrection::make_room() {
  const auto least = std::min_element(entries_.begin(), entries_.end(), [](auto& a, auto& b) {
    return std::abs(a.second.factor - 1) < std::abs(b.second.factor - 1);
  });
  if (least != entries_.end()) entries_.erase(least);
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

void AdaptiveCorrection::restart_tracking() {
  tracking_ = true;
  iteration_sum_ = window_sum_ = 0;
  iteration_count_ = window_count_ = 0;
}

std::size_t AdaptiveCorrection::corrected_shapes() const {
  return static_cast<std::size_t>(std::count_if(
      entries_.begin(), entries_.end(),
      [&](const auto& entry) { return known(entry.second) && deviates(entry.second.factor); }));
}

}  // namespace troupe::balancer
