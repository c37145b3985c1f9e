// Streams of an accelerator beside its default one, each of one holder at a time.
//
// LibTorch hands out those of a small pool in turn (of CUDA's 32 for a device), whether somebody
// has them or not. Two holders of one stream wait for each other's work; where two devices launch
// on theirs in opposite orders, both for ever. Thread-safe.

#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <memory>

#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

/// Those of all devices of the process.
class DeviceStreams {
 public:
  /// Given back when nobody holds it any more. What was launched on it may still run then, before
  /// what its next holder launches.
  using Own = std::shared_ptr<const c10::Stream>;

  /// A stream of `place` that nobody else has from here: the one that was given back first, or one
  /// that nobody has had. Errors: unavailable: all are held; the fix says how fewer are needed.
  /// Throws as LibTorch does, as where `place` has no streams.
  static Result<Own> take(c10::Device place);
};

}  // namespace troupe::engine
