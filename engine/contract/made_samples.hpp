// Samples made up on the spot, where a check needs no data: short ones, with media for every
// encoder and without any.
//
// Pure; the same options give the same samples.

#pragma once

#include <cstdint>
#include <vector>

#include "runtime/data/reading/options.hpp"
#include "runtime/data/samples/decode_sample.hpp"

namespace troupe::engine {

/// `count` samples in the order of their positions. In every four: one picture and one window of
/// sound for each encoder, text alone, two of each (of other sizes), one of each again. Pictures
/// are a few rows of the llm, windows as well; what they show is noise. Where `options` has no
/// encoders, all are text of different lengths.
std::vector<data::DecodedSample> made_samples(const data::DataOptions& options, std::int64_t count);

}  // namespace troupe::engine
