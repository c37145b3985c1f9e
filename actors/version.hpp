// The version that nodes and supervisor compare before they work together.

#pragma once

namespace troupe::actors {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace troupe::actors
