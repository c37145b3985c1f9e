// What a job wants to be shown to an observer of the user's: one `[[observe.observers]]`.

#pragma once

#include <cstdint>
#include <string>

namespace troupe::observers {
/// Who wants to see what, and when.
struct Watch {
  std::string name;    ///< Of a registered observer.
  std::string module;  ///< Empty: all.
  bool rows = true;
  bool gradients = false;
  bool losses = false;
  std::int64_t every_steps = 1;
  std::int64_t queue = 64;  ///< Parts that may wait for it.
  std::string options;      ///< For the observer alone.

  friend bool operator==(const Watch&, const Watch&) = default;
};

}  // namespace troupe::observers
