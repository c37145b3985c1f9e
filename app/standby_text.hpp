// How planning commands print who keeps what without a stage, and what that costs; and as JSON.

#pragma once

#include "app/planning.hpp"

namespace troupe::app {

/// One row per node that is on standby for something: layers, their bytes, and the memory of the
/// whole node beside its limit. Where nobody is and the job promises to bear losses: that replicas
/// keep that promise, for nothing. Else prints nothing.
void print_standbys(const Planning& planning, const scheduler::AutoLayout& layout);

/// `standby`: {fault_tolerance, copies, bytes, nodes [{node, runs, tied, bytes, memory_bytes}]}.
Json standbys_json(const Planning& planning, const scheduler::AutoLayout& layout);

}  // namespace troupe::app
