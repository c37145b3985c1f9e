// What `troupe balance` reports about a policy on batches of samples: how even its microbatches
// are, what it defers, and what a step takes in the simulator.
//
// Pure: values in, values out.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/balance/pipeline_spread.hpp"
#include "balancer/policies.hpp"
#include "balancer/workload.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/module_pipeline.hpp"

namespace troupe::app {

/// How the policies run.
struct PolicyQuestion {
  std::vector<scheduler::ModulePipeline> shapes;  ///< [pipeline]; at least one.
  std::string schedule;
  /// Microbatches, stages, cost and bound are set per pipeline.
  balancer::PolicyOptions options;
  std::vector<std::vector<PipelineBatch>> batches;  ///< [batch][pipeline]; a pipeline may be empty.
};

/// One policy on one batch, or over all.
struct PolicyAnswer {
  balancer::Spread encoder;  ///< Of microbatch forward times, over all pipelines.
  balancer::Spread llm;
  std::int64_t deferred = 0;          ///< Samples (over all batches: their sum).
  std::int64_t rows_held_max = 0;     ///< Most encoder rows that wait past their own microbatch.
  double step_ms = 0;                 ///< Slowest pipeline; over all batches: the mean.
  double lower_bound_ms = 0;          ///< Largest over pipelines; over all batches: the mean.
  std::vector<double> encoder_loads;  ///< Of the first pipeline, in order of execution.
  std::vector<double> llm_loads;
};

struct PolicyReport {
  std::string policy;
  std::vector<PolicyAnswer> batches;
  PolicyAnswer all;  ///< Loads: of the first batch.
};

/// Runs one policy over all batches; without batches all figures are 0. The simulated step is
/// compute alone (a backward takes twice the forward, less what freezing saves): what `troupe solve
/// simulate` says.
///
/// Errors: as `assign_microbatches` and `make_schedule`.
Result<PolicyReport> report_policy(const std::string& policy, const PolicyQuestion& question);

}  // namespace troupe::app
