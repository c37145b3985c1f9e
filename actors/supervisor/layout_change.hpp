// Layouts on their way, and why: values of the supervisor.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/link/heartbeat.hpp"
#include "runtime/vocabulary/model_state.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "scheduler/state/state_moves.hpp"

namespace troupe::actors {

/// A layout on its way.
struct LayoutChange {
  scheduler::StateMoves moves;
  StatePlacement want;
  Time due;  ///< Decided from here on.
  Time begun;
  Time fetched;
  double connect_ms = 0;  ///< Of the node to which connecting to its peers took longest.
  std::string why = {};   ///< Where somebody asked for it: who.
  /// Of the new plan's: their state comes during its first step.
  std::vector<Standby> arriving = {};
};

/// Newcomers take over state while the others train (scheduler/recovery/warm_up.hpp).
struct WarmingUp {
  ParallelPlan base;  ///< The layout, without what warms up.
  Time begun;
  double step_ms = 0;      ///< Of the last step before.
  std::int64_t steps = 0;  ///< During which state came.
  std::int64_t bytes = 0;  ///< Between nodes.
  double connect_ms = 0;   ///< Of these layouts in all, each as its slowest node says.
  Time ended = {};         ///< Then the layout that gives the newcomers work was ordered.
};

/// What a job does about nodes that were lost, join or leave, until it trains with those there are.
struct Regrouping {
  bool is_takeover = false;  ///< The head itself was lost.
  bool is_overdue = false;   ///< Nodes were lost because they did not take up its layout.
  std::vector<NodeId> lost;
  std::vector<NodeId> joined;
  std::vector<NodeId> drained;            ///< They give their state away, and then go.
  std::string why_lost;                   ///< Of each of them, the head first; separated by `; `.
  std::map<NodeId, std::string> reasons;  ///< Of each that joins or leaves.
  Time noticed;                           ///< The first loss; else who first leaves or joins.
  double detect_ms = 0;
  double waited_ms = 0;             ///< For nodes, of what passed since.
  StatePlacement left;              ///< Where state lies without the lost ones.
  ParallelPlan plan;                ///< With which it goes on.
  std::set<NodeId> idle;            ///< Nodes that `plan` does without.
  std::set<NodeId> unfilled;        ///< Spare nodes that it gives fewer copies than they may have.
  LayoutChange change;              ///< To `plan`.
  std::optional<WarmingUp> warmed;  ///< What came before, while the others trained.
  Status room = Done{};  ///< For `change` beside the present layout, or what is in its way.
  std::string choice;    ///< Why `plan`, where there were others; a clause.
};

}  // namespace troupe::actors
