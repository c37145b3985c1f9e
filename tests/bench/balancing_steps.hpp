// What policies make of a pipeline's step in the simulator.

#pragma once

#include <string>

namespace troupe::bench {

/// Prints for every distribution and real-mini, pipelines of 2, 4 and 8 stages and three schedules,
/// and for 1F1B with fewer and more microbatches and samples in them, `auto`'s mean step of two
/// batches and of the worse one: how far it is above the plan's lower bound, and over the step of
/// even and of random microbatches. `only`: part of "charts, 1f1b, 3 + 5 stages, K 32, 16 per
/// microbatch", to run some.
void print_steps(const std::string& only);

}  // namespace troupe::bench
