// What policies make of a pipeline's step in the simulator.

#pragma once

namespace troupe::bench {

/// Prints for every distribution, pipelines of 2, 4 and 8 stages and two schedules, the worst of
/// three seeds: how far `auto` is above the plan's lower bound, and its step over that of even and
/// of random microbatches.
void print_steps();

}  // namespace troupe::bench
