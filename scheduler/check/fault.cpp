#include "scheduler/check/fault.hpp"

namespace troupe::scheduler {

std::string_view to_string(FaultKind kind) {
  switch (kind) {
    case FaultKind::missing: return "missing";
    case FaultKind::duplicate: return "duplicate";
    case FaultKind::unknown: return "unknown";
    case FaultKind::dependency: return "dependency";
    case FaultKind::deadlock: return "deadlock";
    case FaultKind::memory: return "memory";
  }
  return "unknown";
}

}  // namespace troupe::scheduler
