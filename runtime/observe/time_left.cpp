#include "runtime/observe/time_left.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace troupe::observe {

namespace {

constexpr std::size_t kRecent = 50;

}  // namespace

void TimeLeft::add(std::int64_t step, TokenCount tokens, double step_ms) {
  step_ = step;
  tokens_ += tokens;
  recent_.push_back({step_ms, tokens});
  if (recent_.size() > kRecent) recent_.pop_front();
}

double TimeLeft::step_ms() const {
  if (recent_.empty()) return 0;
  std::vector<double> times;
  for (const Recent& step : recent_) times.push_back(step.step_ms);
  std::sort(times.begin(), times.end());
  const auto cut = times.size() < 3 ? 0 : std::max<std::ptrdiff_t>(1, std::ssize(times) / 10);
  const auto begin = times.begin() + cut, end = times.end() - cut;
  return std::accumulate(begin, end, 0.0) / static_cast<double>(end - begin);
}

std::int64_t TimeLeft::total_steps() const {
  if (goal_.steps > 0 || goal_.tokens == 0) return goal_.steps;
  const TokenCount left = goal_.tokens - goal_.tokens_before - tokens_;
  if (left <= 0) return step_;
  TokenCount recent = 0;
  for (const Recent& step : recent_) recent += step.tokens;
  if (recent == 0) return 0;
  const double per_step = static_cast<double>(recent) / static_cast<double>(recent_.size());
  return step_ + static_cast<std::int64_t>(std::ceil(static_cast<double>(left) / per_step));
}

std::optional<double> TimeLeft::seconds() const {
  const std::int64_t total = total_steps();
  if (total == 0 || recent_.empty()) return std::nullopt;
  return static_cast<double>(std::max<std::int64_t>(total - step_, 0)) * step_ms() / 1000;
}

}  // namespace troupe::observe
