// Which samples of a batch each pipeline gets: by what they weigh, and by the speed that plans of
// earlier batches predict for the pipeline: the speed of the profile, and with
// `balancer.adaptive_correction` the measured one, since predictions follow it then. Later batches
// weigh more. Nodes that are slow at present (node_times.hpp) come on top (pipeline_shares.hpp).
//
// Deterministic: the deal of a batch depends on the batches planned before it, so every run of a
// job deals alike. Single owner, not thread-safe.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "balancer/loads/workload.hpp"
#include "runtime/vocabulary/job_progress.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

/// How fast pipelines are.
class PipelineSpeeds {
 public:
  /// REQUIRES: pipelines >= 1.
  explicit PipelineSpeeds(std::size_t pipelines) : pipelines_(pipelines) {}

  using Share = PipelineShare;
  /// Milliseconds per unit of work of each pipeline; ones while nothing is known.
  std::vector<double> ms_per_work() const { return speeds(&Share::work_ms, &Share::busy_ms); }
  /// The same of llm work in the llm's stages: for samples whose media others may encode.
  std::vector<double> llm_ms_per_work() const {
    return speeds(&Share::llm_work_ms, &Share::llm_busy_ms);
  }

  /// Notes the next planned batch; of what a pipeline has none of it teaches nothing. `stage_ms`:
  /// what its stages take, by what it was planned with.
  void note(const std::vector<Share>& shares, std::vector<double> stage_ms = {});
  /// Of the newest planned batch; empty: nothing is known yet.
  const std::vector<double>& stage_ms() const { return stage_ms_; }

  /// What is known, weighted; empty: nothing yet.
  const std::vector<Share>& known() const { return sums_; }
  /// Goes on from the newest of what was known in an earlier run; ignored where it had other
  /// pipelines.
  void restore(const std::vector<DealNote>& notes);

 private:
  std::vector<double> speeds(double Share::*work_ms, double Share::*busy_ms) const;
  void add(const std::vector<Share>& shares, double Share::*work_ms, double Share::*busy_ms);

  std::size_t pipelines_;
  std::vector<Share> sums_;
  std::vector<double> stage_ms_;
};

/// Indices of the samples that each pipeline gets, ascending; every sample once.
///
/// By `work`: Entrain's rule for replicas (section 4.3) with the pipelines' speeds, then exchanges
/// while the largest time over both workloads falls (`balancer::assign_replicas_search`). By
/// `count`: contiguous runs, as many samples to each as eq. 2.6
/// (scheduler/iteration/distribute.hpp) gives for its speed. Either way each gets one at least,
/// where there are so many.
///
/// Errors: as `balancer::assign_replicas`.
/// REQUIRES: `rule` of `job::kDealings`; an entry of `ms_per_work` per pipeline, each > 0.
Result<balancer::SampleGroups> deal_samples(const std::string& rule,
                                            std::span<const balancer::Workload> samples,
                                            const std::vector<double>& ms_per_work);

}  // namespace troupe::engine
