// Layouts in which module groups have numbers of replicas of their own, before any is simulated,
// and what pins say about such numbers.
//
// Pure. Helper of auto_layout.cpp. Groups stand on devices of their own, or encoders on the llm's,
// where a schedule has them take turns; encoders are one group, or each is one with the projector
// that it is joined with.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/layout/auto_layout.hpp"
#include "scheduler/layout/layout_candidates.hpp"
#include "scheduler/layout/layout_score.hpp"
#include "scheduler/layout/replica_shapes.hpp"

namespace troupe::scheduler {

/// A `dp` pin of a module.
struct NumberPin {
  std::string key;  ///< `parallel.vision.dp`.
  ModuleId module;
  std::int32_t number = 0;

  std::string text() const { return key + " = " + std::to_string(number); }
};

/// In model order. REQUIRES: pins of modules that there are.
std::vector<NumberPin> number_pins(const AutoLayoutRequest& request);

/// Ways to group the modules, the llm's group last, in which no group's pins exclude each other:
/// all encoders together, and each by itself. None for a model without encoders.
std::vector<std::vector<std::vector<ModuleId>>> module_groupings(const AutoLayoutRequest& request);

/// The replicas that pins ask of a group; none where they leave it open.
std::optional<std::int32_t> pinned_number(const AutoLayoutRequest& request,
                                          const std::vector<ModuleId>& modules);

/// True if pins allow one number for all modules: pipelines.
bool allows_one_number(const AutoLayoutRequest& request);

/// True if pins, the model and the devices allow numbers that differ.
bool allows_own_numbers(const AutoLayoutRequest& request);

/// True if encoders may also stand on the llm's devices: where they take turns.
bool allows_colocated(const AutoLayoutRequest& request);

/// Candidates that keep the pins, those that may fit first, then by estimate; the best `per_choice`
/// for each number of llm replicas, grouping and degrees. What cannot come below `worth` (>= 1)
/// times the least estimate is left out.
///
/// REQUIRES, of colocated ones: `allows_colocated`.
/// Errors:
/// - infeasible: no such layout keeps the pins, uses all devices that must be used, and fits.
/// - as `LayoutScorer::weights`.
Result<std::vector<LayoutCandidate>> replica_candidates(const AutoLayoutRequest& request,
                                                        LayoutScorer& scorer, Sharing sharing,
                                                        std::size_t per_choice, double worth);

}  // namespace troupe::scheduler
