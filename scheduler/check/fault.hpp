// What can be wrong with an order of actions.
//
// Pure values; shared by the checker of iteration plans and the one of named schedules.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/vocabulary/units.hpp"

namespace troupe::scheduler {

enum class FaultKind : std::uint8_t {
  missing,     ///< Something that must happen is in no list.
  duplicate,   ///< It happens twice.
  unknown,     ///< It names nothing that exists or is called for, or stands on a foreign device.
  dependency,  ///< It stands before something on its own device that it needs.
  deadlock,    ///< It waits, through other devices, for something that waits for it.
  memory,      ///< More microbatches in flight on a stage than promised.
};

/// Lower-case name, as `troupe solve check` prints it.
std::string_view to_string(FaultKind kind);

struct Fault {
  FaultKind kind = FaultKind::missing;
  DeviceId device;     ///< Where it was found; invalid where no device is to blame.
  std::string action;  ///< `forward stage 2 microbatch 3 part 0`, or `llm.0:F3`.
  std::string why;

  friend bool operator==(const Fault&, const Fault&) = default;
};

}  // namespace troupe::scheduler
