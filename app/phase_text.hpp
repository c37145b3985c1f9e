// How planning commands say how even phases are, how many of their rows leave a node, and, as JSON,
// whether they are exchanged.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "app/plan_step.hpp"
#include "app/planning.hpp"
#include "engine/iteration/exchange_count.hpp"
#include "engine/iteration/phase_exchange.hpp"

namespace troupe::app {

/// `1.04`.
std::string ratio_text(double ratio);

/// Adds `imbalance_drawn`, `imbalance_planned`, `imbalance_bound`, `rows_between_nodes` and
/// `rows_between_nodes_bound`, which are those of metrics.jsonl.
void add_figures(const engine::PhaseBalance& balance, const engine::FarRows& far, Json& json);

/// {asked, steps, exchanged, refused (null, or why)}; null where no encoder has several replicas.
Json exchange_json(const ParallelPlan& plan, const std::string& asked,
                   const engine::ExchangeCount& count);

/// How even phases with several replicas are: one line without its end; empty where none has.
/// `phases` and `far_rows`: per module group.
std::string evenness_text(const ParallelPlan& plan, const std::vector<engine::PhaseBalance>& phases,
                          const std::vector<engine::FarRows>& far_rows);

/// What `evenness_text` and `exchange_text` say of the step that stands for a plan, where there is
/// something to say.
void print_phases(const Planning& planning, const PlannedStep& planned);

/// Adds of that step `phases` [{phase, and as `add_figures`}] and `exchange`.
void add_phases(const Planning& planning, const PlannedStep& planned, Json& json);

}  // namespace troupe::app
