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
/// of groups. None where a node works for two replicas, or a group has no templates.
std::vector<HandLayout> group_layouts(const RelayoutRequest& request);

}  // namespace troupe::scheduler
