// What of a job cannot be had from its data: batches larger than the data set, a shuffle of
// nothing, encoders that no sample is for.
//
// Pure. A job with warnings trains; `runtime/job` has those that need no data.

#pragma once

#include <vector>

#include "runtime/data/samples/dataset.hpp"
#include "runtime/job/load_job.hpp"

namespace troupe::engine {

/// In the order of the sections; `where` is the line that says it, or the key.
std::vector<Error> data_warnings(const job::LoadedJob& loaded, const data::Dataset& dataset);

/// `job.toml:14: data.shuffle ...; shuffle = false says so`: a warning on one line.
std::string warning_text(const Error& warning);

}  // namespace troupe::engine
