// What is wrong with a request for a layout before any layout is made. Helper of auto_layout.cpp.
//
// Pure.

#pragma once

#include <string>

#include "scheduler/layout/auto_layout.hpp"

namespace troupe::scheduler {

/// Errors: invalid_argument, not_found, infeasible: as `auto_layout`.
Status check_request(const AutoLayoutRequest& request);

/// `1.3 GB`, `640 MB`; rounded up.
std::string byte_text(double bytes);

}  // namespace troupe::scheduler
