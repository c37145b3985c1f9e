// Why a list of modules is no model, all of it at once, for those who check a job before it starts.
//
// Pure.

#pragma once

#include <vector>

#include "runtime/vocabulary/model_config.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::models {

/// Every reason why `build_graph` refuses these modules, in the order of the modules within each
/// kind of fault; empty where it succeeds. Sizes are judged only where names, families and `next`
/// are sound, and a module's width only against a neighbour that is sound itself: a fault is not
/// told a second time by what follows from it.
std::vector<Error> graph_problems(const std::vector<ModuleConfig>& modules);

}  // namespace troupe::models
