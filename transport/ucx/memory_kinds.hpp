// Which memory UCX reads by itself: that of GPUs where it was built with CUDA and finds one.

#pragma once

#include <ucp/api/ucp.h>

#include <span>

#include "runtime/vocabulary/result.hpp"
#include "transport/transport.hpp"
#include "transport/ucx/worker.hpp"

namespace troupe::transport {

/// As UCX calls it; unknown, which UCX finds out by itself, where it has no word for it. Pure.
ucs_memory_type_t memory_type(MemoryKind kind);

/// Whether all of these contexts take such memory: a message goes by one or the other. One that
/// does not say what it takes takes the host's alone. Pure.
bool all_take(std::span<const ucp_context_attr_t> contexts, MemoryKind kind);

/// What a context says of itself: the memory that it takes.
/// Errors: transport_failed, with UCX's reason.
Result<ucp_context_attr_t> memory_of(const UcxContext& context);
}  // namespace troupe::transport
