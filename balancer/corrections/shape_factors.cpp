#include "balancer/corrections/shape_factors.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::balancer {

WorkShape ShapeFactors::filed(WorkShape shape) const {
  const TokenCount step = std::max<TokenCount>(1, rules_.granularity);
  return {shape.module, (shape.tokens + step - 1) / step * step};
}

const ShapeFactor* ShapeFactors::find(WorkShape filed) const {
  const auto found = entries_.find(filed);
  return found != entries_.end() ? &found->second : nullptr;
}

const ShapeFactor* ShapeFactors::find_known(WorkShape filed) const {
  const ShapeFactor* found = find(filed);
  return found != nullptr && known(*found) ? found : nullptr;
}

ShapeFactor& ShapeFactors::entry(WorkShape filed) {
  if (entries_.size() >= rules_.shapes_max && !entries_.contains(filed)) {
    const auto least = std::min_element(entries_.begin(), entries_.end(), [](auto& a, auto& b) {
      return std::abs(a.second.factor - 1) < std::abs(b.second.factor - 1);
    });
    if (least != entries_.end()) entries_.erase(least);
  }
  return entries_[filed];
}

void ShapeFactors::restore(const Entries& entries) {
  entries_.clear();
  for (const auto& [shape, factor] : entries) entry(filed(shape)) = factor;
}

bool ShapeFactors::deviates(double factor) const {
  return std::abs(factor - 1) > rules_.deviation_min;
}

std::size_t ShapeFactors::deviating() const {
  return static_cast<std::size_t>(std::count_if(
      entries_.begin(), entries_.end(),
      [&](const auto& entry) { return known(entry.second) && deviates(entry.second.factor); }));
}

std::map<std::int32_t, std::vector<double>> ShapeFactors::known_by_module() const {
  std::map<std::int32_t, std::vector<double>> factors;
  for (const auto& [shape, entry] : entries_)
    if (known(entry)) factors[shape.module].push_back(entry.factor);
  return factors;
}

}  // namespace troupe::balancer
