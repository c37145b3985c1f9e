// How `troupe balance` prints what policies make of a job's batches.

#pragma once

#include <vector>

#include "app/balance/policy_report.hpp"

namespace troupe::app {

/// A row per policy: microbatches on both sides, what waits, the simulated step; then the shortest
/// steps, and of few policies the last one's batches. REQUIRES: a report, with batches.
void print_policies(const std::vector<PolicyReport>& reports);

/// A row per policy and phase with several replicas: how even these are, and rows that leave their
/// node; of many policies only of the one with the shortest steps. Prints nothing where no phase
/// has several replicas. REQUIRES: as `print_policies`.
void print_evenness(const std::vector<PolicyReport>& reports);

/// Whether each policy's batches are exchanged: a line for all that agree, or one per policy;
/// nothing where no encoder has several replicas.
void print_exchange(const PolicyQuestion& question, const std::vector<PolicyReport>& reports);

/// Bars of the first batch's microbatches: a line per policy and phase, replicas side by side.
/// REQUIRES: as `print_policies`.
void print_pictures(const std::vector<PolicyReport>& reports);

}  // namespace troupe::app
