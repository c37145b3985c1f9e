// What nodes that lost their head hold together, and what it takes to go on from there. Pure.

#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/link/messages.hpp"

namespace troupe::actors {

/// The job as its nodes know it.
struct Gathered {
  EpochNumber epoch_number = 0;   ///< Of the newest layout whose state somebody has.
  EpochNumber newest_epoch = 0;   ///< That anybody heard of.
  std::int64_t save_number = 0;   ///< The same of checkpoints.
  ParallelPlan plan;              ///< Of that layout.
  std::vector<Standby> arriving;  ///< Of the plan's: their state may not be there.
  std::set<NodeId> members;       ///< Nodes that can go on together.
  std::set<NodeId> must_settle;   ///< Of them: have fetched the layout and not turned over to it.
  std::set<NodeId> must_finish;   ///< Of them: are PREPARED for the last step of `verdicts`.
  JobProgress progress;           ///< Once all have finished the newest step that anybody has.
  std::map<NodeId, std::string> strays;  ///< The others, and why they are of no use.
  /// The word on the newest steps, ascending: the last one is that of `progress.step`.
  std::vector<engine::StepVerdict> verdicts;
};

/// Whether the node is in the middle of a step that it heard the word on: what it holds changes.
bool is_finishing(const NodeHolding& holding);

/// Where any node has heard the word on a step, all finish it: it was given after every device was
/// PREPARED. A step on which nobody heard it counts for nothing.
///
/// REQUIRES: no node is finishing a step.
Gathered weigh(const std::map<NodeId, NodeHolding>& holdings);

/// Nodes that did not finish the last step in their time are no members, and strays from here on.
void set_aside(Gathered& gathered, const std::set<NodeId>& late);

/// The same of nodes to which no way for tensors leads, and why. What they heard of steps counts.
void set_unreached(Gathered& gathered, const std::map<NodeId, Error>& unreached);

/// Where state lay while all nodes of the layout were there; what was on its way counts for
/// nothing.
StatePlacement state_before(const Gathered& gathered, const std::vector<ParameterInfo>& parameters,
                            Dtype dtype);

/// The same without holders on nodes that are no members.
StatePlacement held_by_members(const Gathered& gathered, StatePlacement before);

/// Places that the layout had and nobody takes: their nodes were lost with the head.
std::vector<NodeId> missing_nodes(const Gathered& gathered);

/// The same in words, with why those are of no use that came: `node 1 and node 3 (it holds the
/// state of step 5, others that of 7)`. Empty where nobody is missing.
std::string missing_text(const Gathered& gathered);

}  // namespace troupe::actors
