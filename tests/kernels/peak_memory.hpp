// Test and bench helper: what LibTorch's allocator gives while something runs on this thread.

#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>

namespace troupe::kernels {

/// While alive, follows allocations of this thread. Nests; the innermost sees them.
class PeakMemory {
 public:
  PeakMemory()
      : seen_(std::make_shared<Seen>()), guard_(c10::DebugInfoKind::PROFILER_STATE, seen_) {}

  std::int64_t held() const { return seen_->held; }        ///< Bytes given less those taken back.
  std::int64_t peak() const { return seen_->peak; }        ///< Most that was held at a time.
  std::int64_t largest() const { return seen_->largest; }  ///< Of a single allocation.

 private:
  struct Seen final : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
      held += bytes;
      peak = std::max(peak, held);
      largest = std::max(largest, bytes);
    }
    bool memoryProfilingEnabled() const override { return true; }

    std::int64_t held = 0, peak = 0, largest = 0;
  };

  std::shared_ptr<Seen> seen_;
  c10::DebugInfoGuard guard_;
};

}  // namespace troupe::kernels
