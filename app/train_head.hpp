// The head of a job, from when all that may be wrong with it has been looked at.

#pragma once

#include <memory>

#include "app/doors.hpp"
#include "app/signals.hpp"
#include "app/training_run.hpp"

namespace troupe::app {

/// Starts its local nodes, lets the others in, and ends with the job: with its exit code, or
/// without a word to the caller where the process leaves or begins again. `guard` ends it on a
/// signal until the job takes them.
int train_as_head(Opened opened, Doors doors, std::unique_ptr<EndOnSignal> guard);

}  // namespace troupe::app
