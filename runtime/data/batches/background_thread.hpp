// Threads that work ahead of training: they must not slow down the step that runs meanwhile.

#pragma once

namespace troupe::data {

/// Lowers the calling thread's priority for the rest of its life (Linux: ten nice values, so a
/// tenth of an ordinary thread's share while both want the same core; all of an idle one). Once per
/// thread; more calls do nothing.
///
/// For decoding and planning, which are due only when the next batch begins: where the machine has
/// no core to spare they use the time in which devices wait for each other. Who waits for such a
/// thread leaves it a core, so that it cannot be starved for ever. Best effort: where the system
/// refuses, nothing changes.
void run_in_background();

}  // namespace troupe::data
