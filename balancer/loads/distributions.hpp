// Synthetic data sets shaped like published ones, for comparisons and tests: lengths per sample and
// the workloads that a small cost model gives them.
//
// Pure: the same seed gives the same samples on every machine.

#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "balancer/loads/workload.hpp"

namespace troupe::balancer {

/// The shapes of data that multimodal training meets.
enum class Distribution : std::uint8_t {
  image_text,   ///< One image of varying size, a long answer (as LLaVA-150k).
  charts,       ///< Rendered charts of very different size, their data as text (as SynthChartNet).
  captions,     ///< Images of nearly one size, a short caption (as CocoQA).
  multi_image,  ///< Two to eight images, a moderate text.
  video,        ///< 8 to 64 frames, a short answer.
  audio,        ///< Speech of 1 to 30 s, its transcript.
  mixed,        ///< A sixth of each of the above.
};

/// All of them, in that order.
std::span<const Distribution> distributions();
std::string_view to_string(Distribution distribution);

/// Lengths of one sample in tokens as the LLM sees them.
struct SampleLengths {
  std::vector<std::int64_t> media;  ///< One entry per image, frame or audio window.
  std::int64_t text = 0;

  friend bool operator==(const SampleLengths&, const SampleLengths&) = default;
};

/// Samples of a distribution from a seed. Cost: O(count).
std::vector<SampleLengths> generate_lengths(Distribution distribution, std::size_t count,
                                            std::uint64_t seed);

/// Milliseconds of a sample: linear plus quadratic in tokens; an encoder meets each item alone, the
/// LLM the whole sequence. The defaults give an encoder and an LLM of comparable work.
struct CostCurve {
  double encoder_ms_per_token = 4e-3;
  double encoder_ms_per_square = 4e-7;
  double llm_ms_per_token = 4e-3;
  double llm_ms_per_square = 1e-7;
};
Workload workload_of(const SampleLengths& lengths, const CostCurve& curve = {});

/// `generate_lengths` through `workload_of`.
std::vector<Workload> generate_workloads(Distribution distribution, std::size_t count,
                                         std::uint64_t seed, const CostCurve& curve = {});

}  // namespace troupe::balancer
