// A batch of samples spread over pipelines that may differ in stages: who gets which samples, and
// how many microbatches each runs.
//
// Pure: values in, values out.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "balancer/workload.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/module_pipeline.hpp"

namespace troupe::app {

/// The samples of one pipeline in one batch. Shapes: [samples].
struct PipelineBatch {
  std::vector<balancer::Workload> work;    ///< Forward.
  std::vector<std::int64_t> encoder_rows;  ///< Handed to the llm.
  std::int64_t microbatches = 1;           ///< Of this pipeline.
};

/// Spreads samples so that pipelines finish together. A pipeline's speed is that of its slowest
/// kind of stage on this batch's work: an llm over twice the stages takes half the time per sample.
/// Samples go by `assign_replicas`; `microbatches` (the mean per pipeline) by `distribute`.
///
/// `rows`: encoder rows per sample. REQUIRES: as many as samples; at least one shape.
/// Errors: as those two.
Result<std::vector<PipelineBatch>> spread_batch(std::span<const balancer::Workload> work,
                                                std::span<const std::int64_t> rows,
                                                std::span<const scheduler::ModulePipeline> shapes,
                                                std::int64_t microbatches);

/// Milliseconds that a pipeline needs for this work when no stage ever waits; 0 without work.
double busiest_stage_ms(const balancer::Workload& work, const scheduler::ModulePipeline& shape);

}  // namespace troupe::app
