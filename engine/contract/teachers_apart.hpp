// Teachers in a module group of their own, as in jobs that give them replicas of their own.
//
// Pure.

#pragma once

#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::engine {

/// The plan where no encoder shares a group with a teacher, which reads whole samples: so encoders
/// take them in pieces. Numbers of stages follow from their pipeline alone, in the order of groups.
/// REQUIRES: pipelines of one replica of each group, whose stages have no teacher beside others.
ParallelPlan with_teachers_apart(const ParallelPlan& plan);

}  // namespace troupe::engine
