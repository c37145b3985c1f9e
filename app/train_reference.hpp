// `troupe train --reference`: one process, the oracle.

#pragma once

#include <string>

#include "app/training_run.hpp"

namespace troupe::app {

/// `microbatches`: empty: one sample at a time; `plan`, or a run folder: its microbatches. Returns
/// the exit code.
int train_by_reference(const Opened& opened, const std::string& microbatches);

}  // namespace troupe::app
