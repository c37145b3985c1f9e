// What the checker's tests share: a part's key, and faults as text and as kinds.

#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "scheduler/check/check_plan.hpp"

namespace troupe::scheduler::testing {

/// Stage, microbatch and part.
using PartKey = std::tuple<std::int32_t, std::int32_t, std::int32_t>;

inline PartKey key(const MessageEnd& end) {
  return {end.stage.value, end.microbatch.value, end.part.value};
}

inline PartKey key(const Action& action) {
  return {action.stage.value, action.microbatch.value, action.part.value};
}

inline std::string text_of(const std::vector<Fault>& faults) {
  std::string text;
  for (const auto& fault : faults)
    text += std::string(to_string(fault.kind)) + " " + std::to_string(fault.device.value) + " " +
            fault.action + ": " + fault.why + "\n";
  return text;
}

/// Whether there is a fault of this kind, for a reason that says `why`.
inline bool finds(const std::vector<Fault>& faults, FaultKind kind, const std::string& why) {
  return std::any_of(faults.begin(), faults.end(), [&](const Fault& fault) {
    return fault.kind == kind && fault.why.find(why) != std::string::npos;
  });
}

inline std::set<FaultKind> kinds(const std::vector<Fault>& faults) {
  std::set<FaultKind> kinds;
  for (const auto& fault : faults) kinds.insert(fault.kind);
  return kinds;
}

}  // namespace troupe::scheduler::testing
