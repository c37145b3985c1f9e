// How planning commands say how even phases are, and how many of their rows leave a node.

#pragma once

#include <string>

#include "app/planning.hpp"
#include "engine/iteration/phase_exchange.hpp"

namespace troupe::app {

/// `1.04`.
std::string ratio_text(double ratio);

/// Adds `imbalance_drawn`, `imbalance_planned`, `imbalance_bound`, `rows_between_nodes` and
/// `rows_between_nodes_bound`, which are those of metrics.jsonl.
void add_figures(const engine::PhaseBalance& balance, const engine::FarRows& far, Json& json);

}  // namespace troupe::app
