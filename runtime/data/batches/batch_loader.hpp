// Measures and decodes batches ahead of training, on its own threads, within bounds.
//
// Thread-safe. A node asks early (`request`), and takes when the batch is needed (`take`). What is
// delivered depends on the data and the request alone, never on timing. Not an actor: the loader
// actor owns one and turns `on_ready` into a message.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/data/batches/epochs.hpp"
#include "runtime/data/lengths/length_index.hpp"
#include "runtime/data/samples/decode_sample.hpp"
#include "runtime/data/samples/measure_sample.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::data {

/// Bounds of the loader's threads and memory.
struct LoaderLimits {
  std::int32_t threads = 2;        ///< Decoding threads; >= 1.
  std::int32_t batches_ahead = 4;  ///< Requested and not yet taken; >= 1. More: unavailable.
  /// Decoded and not yet taken. Beyond it only the oldest batch is still decoded, so that a batch
  /// larger than the bound still gets through. A sample in each thread may come on top.
  Bytes bytes_ahead{std::int64_t{1} << 30};
};

/// One sample that a node wants of a batch.
struct WantedSample {
  std::int64_t position = 0;  ///< In the epoch's order.
  WantedParts parts;

  friend bool operator==(const WantedSample&, const WantedSample&) = default;
};

/// What a node wants of one batch. May be empty: the answer is then an empty batch.
struct BatchRequest {
  std::int64_t batch = 0;  ///< Key for `take`; runs on across epochs.
  std::int64_t epoch = 0;  ///< Selects the order that positions refer to (see `batch_span`).
  std::vector<WantedSample> samples;
  /// Whose orders those are; of no records: every epoch takes the whole data set.
  Epochs epochs = {};
  /// Set: lengths alone are wanted, for these encoders, whatever `WantedSample::parts` says
  /// (measure_sample.hpp). Such a batch goes before those that are decoded.
  std::optional<MediaModules> measure = {};
};

/// One outcome per wanted sample, in the order of the request.
struct DecodedBatch {
  std::int64_t batch = 0;
  std::int64_t epoch = 0;
  std::vector<DecodeOutcome> samples;   ///< Empty where lengths were asked for.
  std::vector<MeasureOutcome> lengths;  ///< Empty where they were not.
  double decode_ms = 0;                 ///< Sum over threads, also of measuring.
  std::int64_t indexed = 0;             ///< Lengths for which nothing had to be read.
};

class BatchLoader {
 public:
  /// Starts the threads. `lengths`: those that were measured before, looked into and added to;
  /// null: all are measured.
  /// Errors: invalid_argument (a bound below one), unavailable (no more threads).
  static Result<BatchLoader> start(std::shared_ptr<const Dataset> dataset, DataOptions options,
                                   LoaderLimits limits,
                                   std::shared_ptr<LengthIndex> lengths = nullptr);

  BatchLoader(BatchLoader&&) noexcept;
  BatchLoader& operator=(BatchLoader&&) noexcept;
  /// Cancels and joins: waits for the samples being decoded now, at most.
  ~BatchLoader();

  /// Asks for a batch; returns at once. Batches are decoded in the order of requests, after those
  /// that are measured. `on_ready` is called once when the batch is complete, on a loader thread
  /// (or here, for an empty batch), never after `cancel` returned; it must not block.
  ///
  /// Errors:
  /// - invalid_argument: batch requested twice and not taken, or a position outside the epoch, or
  ///   of a source that is not here.
  /// - unavailable: batches_ahead requests are waiting; take one first.
  /// - cancelled: after `cancel`.
  Status request(BatchRequest request, std::function<void()> on_ready = {});

  /// Waits until the batch is complete and hands it over; at most `timeout`.
  ///
  /// Errors:
  /// - invalid_argument: the batch was never requested, or already taken.
  /// - timed_out: not complete in time; it can be taken later.
  /// - cancelled: `cancel` was called, before or meanwhile.
  Result<DecodedBatch> take(std::int64_t batch, std::chrono::milliseconds timeout);

  /// Drops a batch: what is not decoded yet never will be. Unknown batches are fine.
  void drop(std::int64_t batch);

  /// Ends all waits with `cancelled` and drops everything. Safe to call from any thread but those
  /// of `on_ready`, and more than once.
  void cancel();

  /// Decoded and not yet taken.
  Bytes bytes_held() const;

 private:
  struct Shared;
  explicit BatchLoader(std::unique_ptr<Shared> shared);
  std::unique_ptr<Shared> shared_;
};

}  // namespace troupe::data
