#include "engine/learning/stage_speeds.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe::engine {

namespace {

// Of the newest step: a slow neighbour shows within two steps, one hiccup is gone after a few.
constexpr double kBlend = 0.5;

bool positive(double value) { return std::isfinite(value) && value > 0; }

}  // namespace

std::vector<double> measured_stage_ms(std::size_t stages,
                                      std::span<const observe::TraceEvent> events) {
  std::vector<double> measured_ms(stages);
  for (const auto& event : events) {
    const bool update = event.action.kind == ActionKind::optimizer_step;
    if (!update && observe::time_kind(event.action.kind) != observe::TimeKind::compute) continue;
    if (!event.action.stage.valid()) continue;  // What is kept on standby is no stage's.
    measured_ms[event.action.stage.index()] += 1e-6 * static_cast<double>(event.duration_ns());
  }
  return measured_ms;
}

void StageSpeeds::restore(std::vector<double> factors, std::int64_t steps) {
  factors_ = std::move(factors);
  steps_ = steps;
  warms_up_ = steps > 0;
}

void StageSpeeds::learn(std::span<const double> profile_ms, std::span<const double> measured_ms) {
  if (std::exchange(warms_up_, false)) return;
  factors_.resize(profile_ms.size());
  bool any = false;
  for (std::size_t s = 0; s < std::min(profile_ms.size(), measured_ms.size()); ++s) {
    if (!positive(profile_ms[s]) || !positive(measured_ms[s])) continue;
    const double factor = measured_ms[s] / profile_ms[s];
    const bool replaces = steps_ < 2 || factors_[s] == 0;
    any = true;
    factors_[s] = replaces ? factor : (1 - kBlend) * factors_[s] + kBlend * factor;
  }
  if (any) ++steps_;
}

double StageSpeeds::factor(StageId stage) const {
  return stage.index() < factors_.size() && factors_[stage.index()] > 0 ? factors_[stage.index()]
                                                                        : 1;
}

}  // namespace troupe::engine
