// What a run says about its plan: the layout when it begins, and predicted beside measured times of
// its stages when it ends.
//
// Pure values; not thread-safe.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/iteration/prediction.hpp"
#include "runtime/job/job.hpp"
#include "runtime/observe/trace_event.hpp"
#include "runtime/vocabulary/model_config.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::engine {

/// One line per pipeline: `pipeline 0: node 0: vision, audio | node 1: llm 0-3`. After
/// `kPipelinesShown` pipelines one line says how many more there are. Then who stands by for what.
std::vector<std::string> layout_lines(const ParallelPlan& plan);

inline constexpr std::size_t kPipelinesShown = 8;

/// Who keeps what without a stage, as `standby: node 0: llm 2-3 | node 1: vision`, and what that
/// takes. Empty where nobody does.
std::vector<std::string> standby_lines(const ParallelPlan& plan, Dtype dtype);

/// What of moments is in host memory, as `moments in host memory: 3 MB of the fullest device, 1 MB
/// of them on it at a time`, and what of parameters, as `parameters in host memory while the llm
/// computes: 2 MB of the fullest device`. Empty where nothing is.
std::string host_text(const ParallelPlan& plan, Dtype dtype);

/// A warning where the devices of local nodes want more operator threads than this machine has
/// `cores` (>= 1); empty where they fit, and for devices that are no processors.
std::string crowded_cores(const ParallelPlan& plan, const job::Cluster& cluster,
                          std::int32_t cores);

/// What was measured, what the profile said and what speeds measured in the run made of that, per
/// stage.
class StageTimes {
 public:
  /// Milliseconds, summed over steps.
  struct Sums {
    double measured = 0, profile = 0, calibrated = 0;
  };

  /// Adds a step. Steps without a prediction are left out, and so is the first one: it warms up.
  void add(const Prediction& prediction, std::span<const observe::TraceEvent> events,
           double step_ms);

  /// Notes what it took to prove a plan sound; 0: it was not done.
  void add_check(double check_ms);

  /// A table with a line per stage, at most `kStagesShown`, one for the step, and one for the
  /// checks of plans; empty where no step was added.
  std::vector<std::string> lines(const ParallelPlan& plan) const;

  static constexpr std::size_t kStagesShown = 16;

 private:
  std::string check_line() const;

  std::int64_t steps_ = 0;
  bool warm_ = false;
  std::vector<Sums> stages_;
  Sums step_;
  std::int64_t plans_ = 0, checks_ = 0;
  double check_ms_ = 0;
};

}  // namespace troupe::engine
