#include "engine/profile_layers.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>

#include "scheduler/roofline.hpp"

namespace troupe::engine {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double total_ms(const scheduler::ProfilePoint& point) {
  double sum = 0;
  for (const auto* part : {&point.linear, &point.attention})
    sum += part->forward_ms + part->input_grad_ms + part->weight_grad_ms;
  return sum;
}

constexpr double kRunsOfPoint = 5;  // Roughly: one that warms up, three or more that count.

/// A kind that is being measured.
class Measurement {
 public:
  Measurement(KindBench bench, std::string kind)
      : bench_(std::move(bench)),
        profile_{std::move(kind), {}, scheduler::CostOrigin::measured, bench_.parameters(), {}} {}

  const std::string& kind() const { return profile_.kind; }
  scheduler::LayerProfile take() { return std::move(profile_); }

  /// Begins the next size, or ends if it takes too long; two sizes are always measured. A size that
  /// needs no turns is measured at once.
  void begin(TokenCount tokens, double left_s, double point_s_max) {
    if (profile_.points.size() >= 2) {
      // Twice the tokens take up to four times as long.
      const double run_s =
          4 * static_cast<double>(bench_.copies()) * total_ms(profile_.points.back()) / 1000;
      ended_ |= run_s > point_s_max || kRunsOfPoint * run_s > left_s;
    }
    if (ended_) return;
    takes_turns_ = bench_.begin(tokens);
    if (takes_turns_) return;
    do {
      bench_.forward();
    } while (bench_.backward());
    profile_.points.push_back(bench_.finish());
  }

  void forward() {
    if (takes_turns_) bench_.forward();
  }

  /// False once the size has been run often enough.
  bool backward() {
    if (!takes_turns_) return false;
    takes_turns_ = bench_.backward();
    if (!takes_turns_) profile_.points.push_back(bench_.finish());
    return takes_turns_;
  }

 private:
  KindBench bench_;
  scheduler::LayerProfile profile_;
  bool ended_ = false, takes_turns_ = false;
};

/// Runs the kinds that have begun a size as a stage would: all forward, then all backward. `kind`
/// is set to the one that runs.
void take_turns(std::vector<Measurement>& running, std::string& kind) {
  for (bool again = true; again;) {
    again = false;
    for (Measurement& measurement : running) {
      kind = measurement.kind();
      measurement.forward();
    }
    for (auto it = running.rbegin(); it != running.rend(); ++it) {
      kind = it->kind();
      again |= it->backward();
    }
  }
}

}  // namespace

std::vector<std::vector<std::string>> layer_kind_names(const JobSetup& setup) {
  std::vector<std::vector<std::string>> names;
  for (std::size_t m = 0; m < setup.model.modules.size(); ++m) {
    auto& list = names.emplace_back();
    for (const auto& work : scheduler::layer_works(config_of(setup, ModuleId{m})))
      list.push_back(work.kind);
  }
  return names;
}

std::vector<LayerKind> layer_kinds(const JobSetup& setup) {
  std::vector<LayerKind> kinds;
  const auto names = layer_kind_names(setup);
  for (std::size_t m = 0; m < names.size(); ++m)
    for (std::size_t l = 0; l < names[m].size(); ++l)
      if (l == 0 || names[m][l] != names[m][l - 1])
        kinds.push_back({names[m][l], {ModuleId{m}, static_cast<std::int32_t>(l)}, 1});
      else
        ++kinds.back().layers;
  return kinds;
}

Result<std::vector<scheduler::LayerProfile>> profile_layers(const JobSetup& setup,
                                                            const LayerProfileOptions& options) {
  std::vector<Measurement> running;
  for (const LayerKind& kind : layer_kinds(setup)) {
    auto bench = KindBench::create(setup, kind);
    if (!bench.ok()) return std::move(bench).error();
    running.emplace_back(std::move(bench).value(), kind.name);
  }
  const auto begin = Clock::now();
  std::string kind;
  try {
    for (TokenCount tokens = 16; tokens <= options.tokens_max; tokens *= 2) {
      for (Measurement& measurement : running) {
        kind = measurement.kind();
        const double spent_s = seconds_since(begin);
        if (options.on_progress)
          options.on_progress(kind, std::min(1.0, spent_s / options.budget_s));
        measurement.begin(tokens, options.budget_s - spent_s, options.point_s_max);
      }
      take_turns(running, kind);
    }
  } catch (const c10::Error& error) {
    return Error{Errc::internal, "LibTorch: " + error.msg(), kind, {}};
  }
  std::vector<scheduler::LayerProfile> profiles;
  for (Measurement& measurement : running) profiles.push_back(measurement.take());
  return profiles;
}

}  // namespace troupe::engine
