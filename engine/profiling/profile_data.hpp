// The data profiler: how long the samples of a job are in every module, from the headers of a
// random selection of them (DFLOP, 3.2.2), and the shapes that planners work on.
//
// Reads the data set; decodes no media. Thread-safe. What depends on a model alone is in
// `profile_run.hpp`.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/setup/job_setup.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/sample_shape.hpp"

namespace troupe::engine {

/// Values of [from, to) that were seen.
struct HistogramBar {
  std::int64_t from = 0;
  std::int64_t to = 0;
  std::int64_t count = 0;

  friend bool operator==(const HistogramBar&, const HistogramBar&) = default;
};

/// A distribution of lengths. Quantiles by nearest rank: the smallest value that at least that
/// share of the values does not exceed. All zero without values.
struct LengthDistribution {
  std::int64_t count = 0;
  double mean = 0;
  double deviation = 0;  ///< Of the population.
  std::int64_t smallest = 0, p25 = 0, p50 = 0, p75 = 0, p95 = 0, p99 = 0, largest = 0;
  std::vector<HistogramBar> histogram;  ///< Powers of two, from the first to the last that occurs.

  friend bool operator==(const LengthDistribution&, const LengthDistribution&) = default;
};

/// Cost: O(n log n). REQUIRES: lengths >= 0.
LengthDistribution distribution_of(std::vector<std::int64_t> lengths);

/// What one encoder sees.
struct EncoderData {
  std::string module;
  double sample_share = 0;         ///< Of samples that have something for it.
  LengthDistribution item_rows;    ///< Rows between its layers, per image or audio window.
  LengthDistribution sample_rows;  ///< Per sample that has any.
};

struct DataProfile {
  std::int64_t records = 0;   ///< In the data set.
  std::int64_t measured = 0;  ///< Of them looked at.
  std::int64_t bad = 0;       ///< Of those, samples that training would drop.
  std::int64_t indexed = 0;   ///< Of those looked at, samples that the job's index knew.
  double text_only_share = 0;
  std::vector<EncoderData> encoders;  ///< In the model's order.
  LengthDistribution llm_tokens;      ///< Per sample, media rows included.
  LengthDistribution trained_tokens;  ///< Per sample.
};

struct DataProfileOptions {
  std::int64_t samples_max = 10'000;  ///< More records: a random selection without repetition.
  std::uint64_t seed = 0;             ///< Of the selection.
  std::int32_t threads = 1;           ///< That read headers; >= 1.
  /// Called now and then with the number of records looked at.
  std::function<void(std::int64_t done, std::int64_t of)> on_progress;
};

/// Measures a job's data. Cost: one header per media file that the job's index does not know.
///
/// Errors:
/// - as `data::Dataset::open`.
/// - bad_data: every record that was looked at is bad; the message names the first one's fault.
Result<DataProfile> profile_data(const JobSetup& setup, const DataProfileOptions& options = {});

/// The profile of these shapes, for callers that have them already.
DataProfile describe_shapes(const ModelGraph& model, std::span<const SampleShape> shapes);

/// `count` good samples of a job in random order, with the nodes that see them; positions count
/// from 0. A data set with fewer good samples is repeated, in another order each time.
///
/// Errors: as `profile_data`; invalid_argument: count < 1.
Result<std::vector<SampleShape>> draw_shapes(const JobSetup& setup, std::int64_t count,
                                             std::uint64_t seed = 0);

/// The good samples of global batches `first` .. `first + count - 1` of the job, as training will
/// meet them, with the nodes that see them, one list per batch. For predictions that are to be
/// compared with a run.
///
/// Errors: as `data::Dataset::open`; invalid_argument: first < 0 or count < 1.
Result<std::vector<std::vector<SampleShape>>> batch_shapes(const JobSetup& setup,
                                                           std::int64_t first, std::int64_t count);

}  // namespace troupe::engine
