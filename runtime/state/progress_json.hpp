// The progress of a job in the manifest of a checkpoint.
//
// Values only; no files, no torch.

#pragma once

#include "runtime/state/manifest_reading.hpp"
#include "runtime/vocabulary/job_progress.hpp"

namespace troupe::state {

Json json_of(const JobProgress& progress);
Json json_of(const LearnedCosts& learned);

/// Throws as manifest_reading.hpp says: fields that are missing, of another kind or impossible.
JobProgress read_progress(const Json& json);
LearnedCosts read_learned(const Json& json);

}  // namespace troupe::state
