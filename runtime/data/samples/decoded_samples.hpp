// Decoded samples by their position in the order of training, whoever keeps them: what stages read.

#pragma once

#include <cstdint>
#include <memory>

#include "runtime/data/samples/decode_sample.hpp"

namespace troupe::data {

/// Samples of the batches in flight, as one node holds them. Thread-safe to read; contents are
/// immutable and shared.
class DecodedSamples {
 public:
  using Content = std::shared_ptr<const DecodedSample>;  ///< Null: a bad sample.

  virtual ~DecodedSamples() = default;

  /// The sample at this position of the order, or nullptr where this node did not decode it.
  virtual Content find(std::int64_t position) const = 0;
};

}  // namespace troupe::data
