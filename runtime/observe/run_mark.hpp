// Events of a run as marks of its trace: lines through all tracks.
//
// Pure.

#pragma once

#include <cstdint>
#include <optional>

#include "runtime/observe/run_event.hpp"
#include "runtime/observe/trace_event.hpp"

namespace troupe::observe {

/// All phases of an event together, in milliseconds; not what took place while others trained.
double phases_ms(const RunEvent& event);

/// `lost: node 2`, where it stands in the trace: at `begin_ns`, when it began. None of a
/// checkpoint: these are in order, and as many as would hide the others.
std::optional<TraceMark> run_mark(const RunEvent& event, std::int64_t begin_ns);

}  // namespace troupe::observe
