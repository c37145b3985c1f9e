// What policies make of a pipeline's step in the simulator.

#pragma once

#include <string>

namespace troupe::bench {

/// Prints for every distribution, pipelines of 2, 4 and 8 stages and two schedules, the worst of
/// three seeds: how far `auto` is above the plan's lower bound, and its step over that of even and
/// of random microbatches. `only`: part of "3 + 5, 1f1b", to run some; empty runs all.
void print_steps(const std::string& only);

}  // namespace troupe::bench
