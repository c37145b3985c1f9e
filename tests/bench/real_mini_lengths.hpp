// Lengths of the samples of real-mini, read from the files' headers alone.

#pragma once

#include <string>
#include <vector>

#include "balancer/loads/distributions.hpp"

namespace troupe::bench {

/// Tokens per sample in the order of samples.json: an image gives one token per 28 x 28 pixels, a
/// clip 25 per second, text one per byte. Empty where the folder is not there.
std::vector<balancer::SampleLengths> real_mini_lengths(const std::string& folder);

}  // namespace troupe::bench
