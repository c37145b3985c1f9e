// Turns UCX's status codes into `Error`. The only place that does.

#pragma once

#include <ucs/type/status.h>

#include <string>
#include <string_view>

#include "runtime/vocabulary/result.hpp"

namespace troupe::transport {

/// UCX's text for the status and what it logged about it in this thread.
std::string reason_of(ucs_status_t status);

/// transport_failed: "`call` failed: <text of UCX>".
Error ucx_error(std::string_view call, ucs_status_t status);

}  // namespace troupe::transport
