// Turns UCX's status codes into `Error`. The only place that does. Pure.

#pragma once

#include <ucs/type/status.h>

#include <string_view>

#include "runtime/vocabulary/result.hpp"

namespace troupe::transport {

/// transport_failed: "`call` failed: <text of UCX>".
Error ucx_error(std::string_view call, ucs_status_t status);

}  // namespace troupe::transport
