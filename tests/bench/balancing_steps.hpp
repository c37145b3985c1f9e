// What policies make of a pipeline's step in the simulator.

#pragma once

#include <string>

namespace troupe::bench {

/// Prints for every distribution and real-mini, pipelines of 2, 4 and 8 stages and three schedules,
/// and for 1F1B with fewer and more microbatches and samples in them, the worse of two batches: how
/// far `auto` is above the plan's lower bound, and its step over that of even and of random
/// microbatches. `only`: part of "charts, 1f1b, 3 + 5 stages, K 32, 16 per microbatch", to run
/// some.
void print_steps(const std::string& only);

}  // namespace troupe::bench
