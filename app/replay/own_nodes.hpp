// What a job on its own nodes is for a replay of failures: the layout, templates, memory and step
// times that its own training would have, by its profile.
//
// Pure but for what `engine::choose_layout` reads. Thread-safe.

#pragma once

#include <vector>

#include "engine/setup/job_setup.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/sample_shape.hpp"
#include "scheduler/recovery/recovery_layouts.hpp"
#include "scheduler/recovery/replay_job.hpp"

namespace troupe::app {

/// Steps take `pace` (> 0) times what the profile says. `samples`: drawn from the job's data, which
/// every node is taken to see.
/// `setup` outlives it. REQUIRES: `setup.costs`; samples not empty.
///
/// Errors: as `engine::choose_layout` and `engine::check_state_memory`.
Result<scheduler::ReplayedJob> replayed_job(const engine::JobSetup& setup,
                                            const std::vector<SampleShape>& samples, double pace);

/// The same for restarts from checkpoints, which lay out equal pipelines: the bytes of each layer's
/// state, and templates whose times are such that the job's own layout takes what its step does.
/// `microbatches`: of the job. Errors: as `job.step_ms`.
Result<scheduler::RecoveryModel> restart_model(const scheduler::ReplayedJob& job,
                                               std::int64_t microbatches);

}  // namespace troupe::app
