// Counts what LibTorch's allocator gives less what it takes back, on the thread that looks.
//
// How profiles measure the activations of a layer and stages those of a part. Not thread-safe.

#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <memory>
#include <utility>

namespace troupe::engine {

/// The running sum.
class MemoryCount final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t bytes, size_t total, size_t, c10::Device) override {
    bytes_ += bytes;
    total_ = static_cast<std::int64_t>(total);
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::int64_t bytes() const { return bytes_; }
  std::int64_t total() const { return total_; }

 private:
  std::int64_t bytes_ = 0;
  std::int64_t total_ = 0;
};

/// While alive, counts on this thread. Nests; the innermost counts.
class CountMemory {
 public:
  CountMemory()
      : count_(std::make_shared<MemoryCount>()),
        guard_(c10::DebugInfoKind::PROFILER_STATE, count_) {}

  /// Bytes taken since it was made, less those given back; may be negative.
  std::int64_t bytes() const { return count_->bytes(); }
  /// Bytes that are out of all that the allocator has given while anybody counted, on any thread:
  /// what inner counts saw too. As of the last time that this one was told of.
  std::int64_t total() const { return count_->total(); }

 private:
  std::shared_ptr<MemoryCount> count_;
  c10::DebugInfoGuard guard_;
};

}  // namespace troupe::engine
