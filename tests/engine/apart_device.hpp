// The device of tests/accelerator, whose memory no processor can reach, and what tests of devices
// share.

#pragma once

#include <chrono>
#include <thread>

#include "engine/execution/device.hpp"
#include "engine/execution/device_place.hpp"
#include "runtime/plugins/load_plugin.hpp"
#include "tests/torch_catch.hpp"

namespace troupe::engine {

inline DeviceOptions apart() {
  REQUIRE(plugins::load_plugin(TROUPE_APART).ok());
  DeviceOptions options;
  options.place = find_place("apart", 1).value();
  return options;
}

inline Device::Work nothing() {
  return [] { return Done{}; };
}

/// Until it has completed, at most ten seconds.
inline bool completes(const Launch& launch) {
  for (int round = 0; round < 100'000 && !launch.done(); ++round)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  return launch.done();
}

}  // namespace troupe::engine
