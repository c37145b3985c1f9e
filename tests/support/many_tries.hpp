// For tests of random inputs: how many of them, and how much memory they took.

#pragma once

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

namespace troupe::testing {

/// `few`, or 100,000 where TROUPE_CHAOS is in the environment (`scripts/test --chaos`).
inline std::uint32_t tries(std::uint32_t few) {
  return std::getenv("TROUPE_CHAOS") != nullptr ? 100'000 : few;
}

/// The most memory that this process has had at once, MiB; 0 where the system does not say.
inline std::int64_t peak_memory_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::atoll(line.c_str() + 6) / 1024;
  return 0;
}

/// What inputs may take, MiB: nothing to speak of, and what the address sanitizer keeps of freed
/// memory on top (256, and its books).
inline constexpr std::int64_t kMemoryOfTriesMax = 600;

}  // namespace troupe::testing
