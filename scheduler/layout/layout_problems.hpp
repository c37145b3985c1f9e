// All that is wrong with a layout at once, for those who check it before a job starts.
//
// Pure.

#pragma once

#include <vector>

#include "scheduler/layout/place_by_hand.hpp"

namespace troupe::scheduler {

/// The first fault of each pipeline, else of the whole. Empty where `place_by_hand` succeeds;
/// otherwise its error comes first.
std::vector<Error> layout_problems(const ModelGraph& model, const HandLayout& layout,
                                   const ClusterShape& cluster,
                                   IdleDevices idle = IdleDevices::refused,
                                   const Tolerance& tolerance = {});

}  // namespace troupe::scheduler
