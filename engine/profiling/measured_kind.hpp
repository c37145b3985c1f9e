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

/// The size that is measured in the place of `tokens`, a power of two >= 16: as many. Of an encoder
/// of pictures, whose grids are multiples of what it merges, the merged patches are a power of two:
/// where it merges 1, 2 or 4 patches a side that is the same, of 3 it is 9 in the place of 16.
/// Doubles with `tokens`.
TokenCount measured_size(const MediaInput& media, TokenCount tokens);

/// The most square grid of so many patches, of which the merged ones are a power of two; its sides
/// are multiples of what the encoder merges.
models::GridSize squarest_grid(const VisionInput& vision, std::int64_t patches);

/// The most rows of one sequence: of an encoder that takes pictures in one square, as many patches
/// as the largest `squarest_grid` in it has, as a table of positions may end there.
TokenCount sequence_max(const MediaInput& media);

/// Rows of each teacher of the job for so many tokens of text, of no meaning.
std::vector<models::TaughtRows> any_taught_rows(const JobSetup& setup, std::int64_t tokens);

}  // namespace troupe::engine
