// What policies make of small batches: a batch of 32 over two stages, as on one small machine.

#pragma once

namespace troupe::bench {

/// Prints a table per layout (llm or encoder 1.5 times as busy): the simulated step of each policy
/// over that of random order, for four schedules, as the mean over batches of real-mini's own
/// lengths; without and with a fixed cost of every action. Nothing where the data is not there.
void print_small_batches();

}  // namespace troupe::bench
