// The head of a job, from when all that may be wrong with it has been looked at.

#pragma once

#include "app/doors.hpp"
#include "app/training_run.hpp"

namespace troupe::app {

/// Starts its local nodes, lets the others in, and ends with the job: with its exit code, or
/// without a word to the caller where the process leaves or begins again.
int train_as_head(Opened opened, Doors doors);

}  // namespace troupe::app
