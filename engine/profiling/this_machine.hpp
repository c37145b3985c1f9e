// Facts about the machine that this process runs on.

#pragma once

#include <cstdint>
#include <string>

namespace troupe::engine {

/// Its name, or `unknown-host`.
std::string host_name();

/// Cores that this process may use; >= 1.
std::int32_t core_count();

/// What its processor is called, as the system says it: `AMD EPYC 7B13`; empty: it does not say.
std::string processor_name();

}  // namespace troupe::engine
