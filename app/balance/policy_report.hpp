// What `troupe balance` reports about a policy on batches of samples: how even its microbatches
// are, what it defers, and what a step takes where training cuts its batches by it.
//
// Pure: values in, values out. Steps are those of engine/layout/simulated_training.hpp, so that
// this command, `troupe simulate` and the prediction of a run say the same of the same batches.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "balancer/loads/workload.hpp"
#include "engine/iteration/exchange_count.hpp"
#include "engine/iteration/microbatching.hpp"
#include "engine/iteration/phase_exchange.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/sample_shape.hpp"

namespace troupe::app {

/// How the policies run.
struct PolicyQuestion {
  ParallelPlan plan;
  engine::MicrobatchingOptions options;                ///< All but the policy.
  std::shared_ptr<const engine::PlanningCosts> costs;  ///< REQUIRES: not null.
  std::vector<std::vector<SampleShape>> batches;       ///< In training order; none is empty.
};

/// The work of one module group on one batch, or over all.
struct PhaseAnswer {
  std::string name;              ///< Of the group: `vision+audio`, `llm`.
  balancer::Spread spread;       ///< Of microbatch forward times, over all its replicas.
  engine::PhaseBalance balance;  ///< Over all batches: means.
  engine::FarRows far_rows;      ///< As `balance`.
  /// Forward milliseconds of each replica's microbatches, in order of execution.
  std::vector<std::vector<double>> loads;
};

/// One policy on one batch, or over all.
struct PolicyAnswer {
  double microbatches = 0;  ///< Of the llm, mean over its replicas (and batches): K, or K_eff.
  std::vector<PhaseAnswer> phases;  ///< Of the layout, in model order. Of no batches: none.
  std::int64_t deferred = 0;        ///< Samples (over all batches: their sum).
  std::int64_t rows_held_max = 0;   ///< Most encoder rows that wait past their own microbatch.
  double step_ms = 0;               ///< Over all batches: the mean.
  double lower_bound_ms = 0;        ///< No order of this plan's work beats it; as `step_ms`.
  std::vector<std::int64_t> dealt;  ///< Samples of each pipeline (over all: of the first batch).

  const PhaseAnswer& llm() const { return phases.back(); }  ///< REQUIRES: there are phases.
};

struct PolicyReport {
  std::string policy;
  std::vector<PolicyAnswer> batches;
  PolicyAnswer all;  ///< Loads: of the first batch.
  /// The phase that stands for all encoders in a table: the one whose replicas have most to do in
  /// the first batch, whatever the policy; none without encoders.
  std::optional<std::size_t> encoders;
  engine::ExchangeCount exchange;  ///< Of the batches.
};

/// Runs one policy over all batches as training would: dealt to pipelines by what earlier batches
/// took, cut, ordered and simulated with messages and updates. Without batches all figures are 0.
///
/// `on_batch`: called with the index of each batch before it is planned; may be empty.
///
/// Errors: as `SimulatedTraining::step`.
Result<PolicyReport> report_policy(const std::string& policy, const PolicyQuestion& question,
                                   const std::function<void(std::size_t)>& on_batch = {});

}  // namespace troupe::app
