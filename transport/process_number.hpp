// The number that tells one transport from every other ever made.

#pragma once

#include <cstdint>

namespace troupe::transport {

/// Random, never 0; from the operating system, so that restarted and cloned processes differ.
/// Thread-safe.
std::uint64_t make_process_number();

}  // namespace troupe::transport
