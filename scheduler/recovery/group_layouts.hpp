// Layouts of module groups with replicas of their own on the nodes that are left, or have joined.
//
// Pure; the same answer on every node.

#pragma once

#include <vector>

#include "runtime/vocabulary/hand_layout.hpp"
#include "scheduler/recovery/relayout.hpp"

namespace troupe::scheduler {

/// Each group changes as `reconfigure` says for its own replicas, cut anew from templates of its
/// layers (`TemplateSet::groups`): nodes are borrowed and merged within a group first. One that
/// then has too few for a single replica takes nodes of the group that has most beyond its own
/// minimum, from the tail of its largest replica. A replica whose nodes stay the same keeps its
/// stages.
///
/// Nodes without work go to one group; there is a layout for each that can use them, in the order
/// of groups.
///
/// Where a node works for several groups (encoders on the llm's nodes), nodes need not be taken
/// away from one to be of use to another: nodes without work go to all groups, or to one, and a
/// group with too few for a single replica works on all that are there. Replicas may have as few
/// nodes as templates allow; as these do not know what other groups keep on the same devices,
/// layouts whose replicas have 2, 4, ... times as many follow, up to the smallest that there was.
/// Each layout stands once; at most (groups + 1) x (2 + log2 of a replica's nodes) of them.
///
/// Replicas of one group that share nodes change together, as if they were one: as they stand where
/// their nodes stay the same, else a single one is cut over those that are left.
///
/// None where a group has no templates, or nodes are too few.
std::vector<HandLayout> group_layouts(const RelayoutRequest& request);

}  // namespace troupe::scheduler
