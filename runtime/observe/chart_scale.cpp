#include "runtime/observe/chart_scale.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/observe/html_page.hpp"

namespace troupe::observe {

namespace {

// Steps of 1, 2 or 5 that give about `count` labels.
double tick_step(double span, double count) {
  const double rough = span / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= rough) return factor * power;
  return 10 * power;
}

std::vector<double> even_ticks(const ChartScale& scale, int count) {
  std::vector<double> ticks;
  const double step = tick_step(scale.high - scale.low, count);
  for (double tick = std::ceil(scale.low / step) * step; tick <= scale.high; tick += step)
    ticks.push_back(std::abs(tick) < step * 1e-6 ? 0 : tick);
  return ticks;
}

// 1, 2, 5, 10, ...; of many decades only the powers of ten, of very many every so-manieth.
std::vector<double> decade_ticks(const ChartScale& scale, int count) {
  const auto first = static_cast<int>(std::floor(std::log10(scale.low)));
  const auto last = static_cast<int>(std::ceil(std::log10(scale.high)));
  const bool few = 3 * (last - first) <= 2 * count;
  const int stride = std::max(1, (last - first) / count);
  std::vector<double> ticks;
  for (int power = first; power <= last; power += stride)
    for (const double factor : few ? std::vector<double>{1, 2, 5} : std::vector<double>{1}) {
      const double tick = factor * std::pow(10, power);
      if (tick >= scale.low && tick <= scale.high) ticks.push_back(tick);
    }
  return ticks;
}

}  // namespace

void ValueRange::add(double value) {
  if (!std::isfinite(value)) return;
  low = std::min(low, value);
  high = std::max(high, value);
}

double ChartScale::share(double value) const {
  if (!logarithmic) return (value - low) / (high - low);
  if (!(value > 0)) return std::numeric_limits<double>::quiet_NaN();
  return std::log(value / low) / std::log(high / low);
}

std::vector<double> ChartScale::ticks(int count) const {
  if (!logarithmic) return even_ticks(*this, count);
  auto ticks = decade_ticks(*this, count);
  return ticks.size() >= 3 ? ticks : even_ticks(*this, count);
}

ChartScale linear_scale(ValueRange values, bool from_zero) {
  if (from_zero && values.low >= 0) values.low = 0;
  if (values.low == values.high) {
    // A level line in the middle, or zero on the ground.
    const double room = values.low == 0 ? 1 : std::abs(values.low) / 2;
    return {values.low == 0 ? 0 : values.low - room, values.high + room};
  }
  const double room = (values.high - values.low) * 0.05;
  return {values.low == 0 ? 0 : values.low - room, values.high + room};
}

ChartScale logarithmic_scale(ValueRange values) {
  const double room = std::max(std::pow(values.high / values.low, 0.05), 1.02);
  return {values.low / room, values.high * room, true};
}

std::string axis_number(double value) {
  constexpr std::pair<double, const char*> kUnits[]{{1e9, "G"}, {1e6, "M"}, {1e4, "k"}};
  for (const auto& [size, name] : kUnits)
    if (std::abs(value) >= size && std::abs(value) < 1e15)
      return figure(value / (size == 1e4 ? 1e3 : size)) + name;
  return figure(value);
}

}  // namespace troupe::observe
