// The work of a kind's layers, as all measurements of them see it.
//
// Thread-safe.

#pragma once

#include <vector>

#include "engine/profiling/kind_bench.hpp"
#include "models/layer.hpp"
#include "runtime/vocabulary/layer_work.hpp"

namespace troupe::engine {

/// The job's configuration of a module. REQUIRES: `module` is one of `setup.model`.
const ModuleConfig& config_of(const JobSetup& setup, ModuleId module);

/// What the layers of this kind compute, as their family says.
LayerWork work_of(const JobSetup& setup, const LayerKind& kind);

/// Rows of each teacher of the job for so many tokens of text, of no meaning.
std::vector<models::TaughtRows> any_taught_rows(const JobSetup& setup, std::int64_t tokens);

}  // namespace troupe::engine
