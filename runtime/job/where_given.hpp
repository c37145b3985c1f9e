// Where a job says something about a key, for errors that are found after reading.
//
// Pure.

#pragma once

#include <map>
#include <string>

#include "runtime/job/load_job.hpp"

namespace troupe::job {

/// The place of `key` itself, else that of the nearest table around it that was given; empty if
/// none was.
std::string where_given(const std::map<std::string, Origin>& origins, std::string key);

}  // namespace troupe::job
