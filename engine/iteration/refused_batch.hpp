// A batch of which there is no plan on a layout. A value.

#pragma once

#include <cstdint>
#include <vector>

#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/sample_shape.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::engine {

struct RefusedBatch {
  std::int64_t batch = 0;            ///< As `PlannedBatch::batch`: of step `batch` + 1.
  EpochNumber epoch_number = 0;      ///< Of the layout.
  Error why;                         ///< As `BatchPlanner::plan` said it; infeasible.
  std::vector<SampleShape> samples;  ///< That were to be trained.
};

}  // namespace troupe::engine
