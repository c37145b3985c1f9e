// What an iteration plan promises, to be held against what is measured.
//
// Plain values.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "balancer/loads/workload.hpp"
#include "engine/iteration/phase_exchange.hpp"
#include "runtime/observe/trace_event.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::engine {

/// What a plan promises. Zeros where no costs are known.
struct Prediction {
  /// What the step will take by the profile alone, whatever was measured in this run.
  double profile_step_ms = 0;
  std::vector<double> profile_stage_ms;  ///< Per stage: compute and update.
  /// The same with what was measured in this run (`Microbatching::learn`): the speed of each stage,
  /// which is told and never planned with, so that the same job gives the same plans; or with
  /// adaptive correction what it learned, which plans follow.
  double calibrated_step_ms = 0;
  std::vector<double> calibrated_stage_ms;
  std::vector<double> planned_stage_ms;  ///< By what the plan was made of, which is one of the two.
  /// Per pipeline: of its samples, by the profile alone.
  std::vector<balancer::Workload> work;
  /// Encoders share samples of all pipelines out (`balancer.exchange`), but where that makes no
  /// phase more even. Not where phases had no room for it, and so none is exchanged.
  bool exchanged = false;
  /// Per module group: whether its samples are spread over all its replicas for that. A phase that
  /// this would not make more even stays as it was cut. Empty: none is.
  std::vector<bool> exchanged_phases;
  bool exchanges(std::size_t group) const {
    return group < exchanged_phases.size() && exchanged_phases[group];
  }
  /// Why they could not, or those of the first phase without room for it, where the job wants it or
  /// leaves it open; none where all do, or need not.
  std::optional<Error> exchange_refused = {};
  /// By module group: why a phase was not that had no room for it, where others may be.
  std::map<std::size_t, Error> refused_phases = {};
  /// Per device: most bytes of activations, rows and gradients at any time, held rows included.
  std::vector<Bytes> activations;
  /// Largest over mean microbatch work, the worse side of the worst pipeline; of the order of
  /// arrival, and of the plan.
  double imbalance_in_order = 1;
  double imbalance = 1;
  /// Per module group: how even its replicas' work is.
  std::vector<PhaseBalance> phases;
  std::vector<FarRows> far_rows;  ///< Per module group: rows that leave the node they are made on.
  std::int64_t deferred_samples = 0;
  std::int64_t corrected_shapes = 0;  ///< Whose predictions follow what `learn` was told.
  /// Most rows, and their bytes in the rows' dtype, that wait for a later llm microbatch than the
  /// one of their encoder microbatch, at any time on any pipeline.
  TokenCount held_rows = 0;
  Bytes held_bytes;
  /// The step as it would be traced, from 0 ns. Empty for a step of very many actions.
  std::vector<observe::TraceEvent> events;
};

}  // namespace troupe::engine
