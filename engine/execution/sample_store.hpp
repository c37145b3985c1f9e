// Decoded samples of the batches in flight, as one node holds them, by position.
//
// Written by the node's loader, and by the executors of its devices where content comes from other
// nodes; read by these executors: every call locks. Contents are immutable and shared.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "runtime/data/samples/decoded_samples.hpp"

namespace troupe::engine {
/// By position in the order of training; thread-safe.
class SampleStore final : public data::DecodedSamples {
 public:
  /// Keeps it until it is dropped.
  void put(std::int64_t position, Content content) {
    const std::lock_guard lock(mutex_);
    contents_[position] = std::move(content);
  }

  /// Adds what came of a sample from another node, its text or some of its media, to what is there.
  /// Cost: a copy of what is there.
  void add(data::DecodedSample content);

  Content find(std::int64_t position) const override {
    const std::lock_guard lock(mutex_);
    const auto found = contents_.find(position);
    return found == contents_.end() ? nullptr : found->second;
  }

  /// Forgets everything before `position`: those batches are done.
  void drop_before(std::int64_t position) {
    const std::lock_guard lock(mutex_);
    contents_.erase(contents_.begin(), contents_.lower_bound(position));
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::int64_t, Content> contents_;
};

}  // namespace troupe::engine
