// Whether a batch of samples has room beside the state of a layout, before anything is planned.
//
// Pure.

#pragma once

#include <vector>

#include "engine/setup/job_setup.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/sample_shape.hpp"

namespace troupe::engine {

/// Refuses a layout for which no cut of these samples keeps within the bounds of memory that plans
/// have (`scheduler::llm_cap_ms`, `scheduler::memory_bounds`), dealt to pipelines as at first: the
/// largest microbatch has at least the mean, and as many samples as one of them must have. Nothing
/// is cut, ordered or simulated, so that a plan may still find too little room; encoders that share
/// samples out among pipelines or replicas are not looked at. Where nothing is known of costs or of
/// memory every layout will do. Cost: O(samples x stages of a pipeline), the dealing, whose search
/// is bounded, and once the layout's groups and stages; twice the dealing where plans may have an
/// exchange or none, and the first deal has no room.
///
/// Errors: infeasible: so; names the pipeline or the device. As `Microbatching::deal`.
Status check_batch_memory(const JobSetup& setup, const ParallelPlan& plan,
                          std::vector<SampleShape> samples);

}  // namespace troupe::engine
