// Which records each epoch of a job trains, in which order, and its division into batches, also
// where records were appended to sources while the job was stopped: an epoch that had begun is
// trained to its end as it was, those after it take all records.
//
// Pure and platform-independent, as epoch_order.hpp.

#pragma once

#include <cstdint>
#include <vector>

#include "runtime/data/batches/epoch_order.hpp"
#include "runtime/vocabulary/job_progress.hpp"

namespace troupe::data {

class Epochs {
 public:
  /// All epochs take this many records. REQUIRES: count >= 0.
  Epochs(std::int64_t count = 0) : stretches_{{0, {count}}} {}  // NOLINT: a number says it all.
  /// REQUIRES: the first stretch begins with epoch 0, each later one with a later epoch; none is
  /// without records; sources only grow, and new ones stand last. None: no records.
  explicit Epochs(std::vector<SourceCounts> stretches);

  const std::vector<SourceCounts>& stretches() const { return stretches_; }

  /// Of an epoch. REQUIRES here and below: epoch >= 0.
  std::int64_t count(std::int64_t epoch) const;
  /// Of the latest epochs: of all sources as they are now.
  std::int64_t newest_count() const;
  /// Places of all epochs before this one: where its positions begin in the running count.
  std::int64_t places_before(std::int64_t epoch) const;
  /// As `batch_span`. REQUIRES: batch >= 0, batch_size >= 1.
  BatchSpan span(std::int64_t batch, std::int64_t batch_size) const;
  /// Batches of all epochs before this one.
  std::int64_t batches_before(std::int64_t epoch, std::int64_t batch_size) const;
  /// Batches that consume the first `places` of the running count.
  std::int64_t batches_for(std::int64_t places, std::int64_t batch_size) const;

  /// The first epoch that has not begun when this batch is the next.
  std::int64_t first_untouched(std::int64_t next_batch, std::int64_t batch_size) const;
  /// The same epochs, but from `epoch` on they take these records of each source.
  Epochs grown(std::int64_t epoch, std::vector<std::int64_t> records) const;

  /// What an epoch trains, as numbers of the records that the latest epochs take: `record_order` of
  /// those that it takes itself. Cost: linear.
  std::vector<std::int64_t> order(const DataOptions& options, std::int64_t epoch) const;

 private:
  const SourceCounts& at(std::int64_t epoch) const;

  std::vector<SourceCounts> stretches_;  ///< Ascending; never empty.
};

}  // namespace troupe::data
