// How even each policy's microbatches are on each distribution.

#pragma once

namespace troupe::bench {

/// Prints one JSON line per claim, the deviations of every policy at 16 samples per microbatch, and
/// the tables themselves to standard error where `tables` is
/// set: standard deviation of encoder and LLM microbatch time in percent of its mean, over eight
/// seeds (real-mini: consecutive batches).
void print_balance(bool tables);

}  // namespace troupe::bench
