// What `data check` tells: how long samples are, which are bad, and why.
//
// Values and text; nothing is printed here.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/data/samples/decode_sample.hpp"

namespace troupe::data {

/// A distribution of lengths. Percentiles by nearest rank: the smallest value that at least that
/// share of the values does not exceed. All zero without values.
struct LengthStatistics {
  std::int64_t count = 0;
  std::int64_t sum = 0;
  std::int64_t smallest = 0;
  std::int64_t p50 = 0;
  std::int64_t p95 = 0;
  std::int64_t largest = 0;

  friend bool operator==(const LengthStatistics&, const LengthStatistics&) = default;
};

/// Cost: O(n log n).
LengthStatistics statistics_of(std::vector<std::int64_t> lengths);

/// A data set, measured as the model will see it. Lengths are those of good samples.
struct DataSummary {
  std::int64_t samples = 0;  ///< All, bad ones too.
  std::int64_t with_images = 0;
  std::int64_t with_audio = 0;
  std::int64_t text_only = 0;
  /// Samples whose text holds what looks like a special token (`ByteTokenizer::find_special_name`).
  std::int64_t with_special_names = 0;
  std::string first_special_name;   ///< "sample s1 (f.json:3) has '<|user|>'"; empty: none.
  LengthStatistics llm_tokens;      ///< Per sample.
  LengthStatistics trained_tokens;  ///< Per sample.
  LengthStatistics image_patches;   ///< Per image, as the first vision encoder takes it.
  LengthStatistics audio_frames;    ///< Per window.
  std::vector<BadSample> bad;       ///< In file order.

  double bad_fraction() const {
    return samples == 0 ? 0 : static_cast<double>(bad.size()) / static_cast<double>(samples);
  }
  friend bool operator==(const DataSummary&, const DataSummary&) = default;
};

/// Decodes every sample, on `threads` threads, and keeps only lengths. `on_progress` is called now
/// and then, on any of the threads but one at a time, with the number of samples done. `index`: is
/// told the lengths; null: nobody. REQUIRES: threads >= 1.
DataSummary summarize(const Dataset& dataset, const DataOptions& options, std::int32_t threads,
                      const std::function<void(std::int64_t)>& on_progress = {},
                      LengthIndex* index = nullptr);

/// The summary as lines for a terminal; names at most `listed_max` bad samples.
std::string to_text(const DataSummary& summary, std::int32_t listed_max = 5);

/// The same as one JSON object.
std::string to_json(const DataSummary& summary);

}  // namespace troupe::data
