// What kinds of stages state of their costs, and the one place where it comes into profiles and
// models, so that planners, simulator, bounds of memory and the check of a layout's state all go by
// it; and whose layers each runs, by which layouts are cut.
//
// Process-wide, as the registry of kinds is (engine/execution/stage_kinds.hpp), and thread-safe.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/iteration/kind_costs.hpp"
#include "scheduler/cost/profile.hpp"

namespace troupe::engine {

/// Of one kind of stages; a function that is not set states nothing.
struct StatedCosts {
  std::string name;                   ///< The kind's.
  std::vector<std::string> families;  ///< Whose layers it speaks of; empty: of all.
  CostsOfKind costs = {};
  BytesOfKind holds = {};
};

/// Adds them for the rest of the process. REQUIRES: no other ones of this name, or of one of these
/// families.
void state_costs(StatedCosts stated);

/// `profile` as kinds of stages run the layers of `graph`: those of their own families, wherever a
/// layout puts them. Others stay, also in stages of a kind, since a profile knows no layout.
/// Cost: linear in points.
///
/// Throws UserFault, which names the kind: what `costs` throws, or that a value is below zero or
/// not finite.
scheduler::Profile with_stated_costs(const ModelGraph& graph,
                                     const std::vector<ModuleConfig>& modules,
                                     scheduler::Profile profile);

/// Notes in the layers of `graph` what stages hold for them (`LayerSpec::held_bytes`).
///
/// Throws UserFault, which names the kind: what `holds` throws, or that a number is below zero.
void note_held_bytes(const std::vector<ModuleConfig>& modules, ModelGraph& graph);

/// Per module of `graph` the kind of stages that runs its layers, counted from 1 in the order in
/// which kinds came; 0: none has its family, or it is the llm, which shares no stage
/// (`place_by_hand`). Empty: no two of them have kinds that differ.
std::vector<std::int32_t> kinds_by_module(const ModelGraph& graph,
                                          const std::vector<ModuleConfig>& modules);

}  // namespace troupe::engine
