// Memory that the rounds of a stage take for good, and which of its layers keep it.
//
// Calls code of the user's on the caller's thread.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "engine/contract/contract.hpp"
#include "engine/contract/stage_bench.hpp"

namespace troupe::engine {

/// Bytes that each round keeps for good, of four by `round`, which says whether one went well and
/// leaves nothing of it; 0: none. What the first one makes for all that follow is no leak. Nothing:
/// a round did not go well.
std::optional<std::int64_t> kept_by_each(const std::function<bool()>& round);

/// What is said of a stage that keeps so many bytes of each round: with the layers that do so when
/// each is tried alone by the engine's own stage, five at most; else with the stage's kind, if it
/// has one and each layer could be tried. `on_begin`: called before each layer. Cost: five rounds
/// of the stage, about.
Breach leak_of(const StageBench& bench, StageId id, std::int64_t bytes,
               const std::function<void()>& on_begin);

}  // namespace troupe::engine
