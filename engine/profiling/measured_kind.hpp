// The work of a kind's layers, as all measurements of them see it.
//
// Thread-safe.

#pragma once

#include <vector>

#include "engine/profiling/kind_bench.hpp"
#include "models/layer.hpp"
#include "runtime/vocabulary/layer_work.hpp"
#include "runtime/vocabulary/media_input.hpp"

namespace troupe::engine {

/// The job's configuration of a module. REQUIRES: `module` is one of `setup.model`.
const ModuleConfig& config_of(const JobSetup& setup, ModuleId module);

/// What the layers of this kind compute, as their family says.
LayerWork work_of(const JobSetup& setup, const LayerKind& kind);

/// The most square grid of `patches`, a power of two; from 16 patches on, sides are multiples of 4.
models::GridSize squarest_grid(std::int64_t patches);

/// The most rows of one sequence, a power of two: of an encoder that takes pictures in one square,
/// as many patches as the largest `squarest_grid` in it has, as a table of positions may end there.
TokenCount sequence_max(const MediaInput& media);

/// Rows of each teacher of the job for so many tokens of text, of no meaning.
std::vector<models::TaughtRows> any_taught_rows(const JobSetup& setup, std::int64_t tokens);

}  // namespace troupe::engine
