// What is wrong with a request for a layout before any layout is made, and which degrees of tensor
// and context parallelism it leaves to choose from. Helper of auto_layout.cpp.
//
// Pure.

#pragma once

#include <string>
#include <vector>

#include "scheduler/auto_layout.hpp"

namespace troupe::scheduler {

/// Errors: invalid_argument, not_found, infeasible: as `auto_layout`.
Status check_request(const AutoLayoutRequest& request);

/// Degrees per module, one entry per choice: each pair that all modules have a profile for and no
/// pin forbids, the same for all; and, for a cluster that is only planned for, what the layout
/// search (`layout.hpp`) finds with degrees of its own for encoders and llm. Never empty for a
/// request that `check_request` accepts, unless nothing fits.
std::vector<std::vector<Parallelism>> degree_choices(const AutoLayoutRequest& request);

/// `1.3 GB`, `640 MB`; rounded up.
std::string byte_text(double bytes);

}  // namespace troupe::scheduler
