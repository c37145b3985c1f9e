// How far a job has come: what it needs besides its model's state to go on as if it had never
// stopped. Commits with each step.
//
// Values only.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/vocabulary/learned_costs.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe {

/// Steps that left parameters alone.
struct SkipCounts {
  std::int64_t count = 0;                ///< In all.
  std::int32_t nonfinite_in_a_row = 0;   ///< The newest ones.
  std::int64_t untrained_positions = 0;  ///< Of the order, since the last step with trained tokens.

  friend bool operator==(const SkipCounts&, const SkipCounts&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, SkipCounts& x) {
    return f(x.count, x.nonfinite_in_a_row, x.untrained_positions);
  }
};

/// How many records of each source the epochs from one on train: the first ones of each.
struct SourceCounts {
  std::int64_t first_epoch = 0;
  /// In order of the sources; one number where only their sum is known.
  std::vector<std::int64_t> records;

  friend bool operator==(const SourceCounts&, const SourceCounts&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, SourceCounts& x) {
    return f(x.first_epoch, x.records);
  }
};

/// What decides which samples a step takes. A job that goes on must have the same.
struct DataOrder {
  std::int64_t records = 0;
  std::uint64_t hash = 0;  ///< Of ids, turns and names of media of all records, in order.
  std::int64_t batch_size = 0;
  std::int64_t seed = 0;
  bool shuffle = true;
  /// Ascending: another one where a job went on with more records. The newest has all of them.
  std::vector<SourceCounts> epochs = {};

  friend bool operator==(const DataOrder&, const DataOrder&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, DataOrder& x) {
    return f(x.records, x.hash, x.batch_size, x.seed, x.shuffle, x.epochs);
  }
};

/// A sample that was dropped, and the batch in which that was found first.
struct BadSampleNote {
  std::string id;
  std::int64_t batch = 0;

  friend bool operator==(const BadSampleNote&, const BadSampleNote&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, BadSampleNote& x) {
    return f(x.id, x.batch);
  }
};

/// What one pipeline was given of batches and how long its busiest device takes for it; later ones
/// weigh more.
struct PipelineShare {
  double work_ms = 0;  ///< Predicted, of all its samples in all modules; 0: nothing is known.
  double busy_ms = 0;
  double llm_work_ms = 0;  ///< The same of the llm alone, by its own stages.
  double llm_busy_ms = 0;

  friend bool operator==(const PipelineShare&, const PipelineShare&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, PipelineShare& x) {
    return f(x.work_ms, x.busy_ms, x.llm_work_ms, x.llm_busy_ms);
  }
};

/// The shares of all pipelines up to and with a batch: later batches are dealt by them.
struct DealNote {
  std::int64_t batch = 0;
  std::vector<PipelineShare> shares;

  friend bool operator==(const DealNote&, const DealNote&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, DealNote& x) {
    return f(x.batch, x.shares);
  }
};

struct JobProgress {
  std::int64_t step = 0;  ///< The last finished one, from 1; the next batch has this number.
  TokenCount tokens = 0;  ///< LLM tokens of all steps so far.
  EpochNumber generation = 0;
  DataOrder data;
  SkipCounts skipped;
  std::vector<BadSampleNote> bad;  ///< Of the batches so far; ascending by id.
  std::vector<DealNote> deals;     ///< That the next batch looks back at; of this layout.
  LearnedCosts learned;            ///< From the steps up to this one.

  friend bool operator==(const JobProgress&, const JobProgress&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, JobProgress& x) {
    return f(x.step, x.tokens, x.generation, x.data, x.skipped, x.bad, x.deals);
  }
};

}  // namespace troupe
