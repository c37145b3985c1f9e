// What `troupe profile` found out, as text: a summary with a verdict, or all of it.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/profiling/profile_data.hpp"
#include "engine/profiling/profile_run.hpp"
#include "scheduler/cost/cost_model.hpp"
#include "scheduler/cost/profile_verdict.hpp"

namespace troupe::app {

inline constexpr std::int64_t kSampleTimes = 64;  ///< Samples that a mean sample is the mean of.

/// What one call found out.
struct ProfileFindings {
  engine::ObtainedProfile obtained;
  bool computed = false;
  scheduler::CostModel costs;
  std::optional<engine::DataProfile> data;
  std::string data_problem;      ///< Why there is no data profile.
  scheduler::MeanSample sample;  ///< Zero without data.
};

scheduler::ProfileVerdict verdict_of(const ProfileFindings& findings);

/// The kind whose worst curve is the worst of all; null where no size could be left out.
const scheduler::KindError* worst_kind(const std::vector<scheduler::KindError>& errors);

std::vector<std::string> module_names(const std::vector<ModuleId>& modules,
                                      const ModelGraph& model);

/// On standard output; `all`: every kind of layer, the links and all lengths too.
void print_profile(const ProfileFindings& findings, bool all);

}  // namespace troupe::app
