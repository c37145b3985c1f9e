// Layouts of module groups with replicas of their own on the nodes that are left, or have joined.
//
// Pure; the same answer on every node.

#pragma once

#include <vector>

#include "runtime/vocabulary/hand_layout.hpp"
#include "scheduler/recovery/relayout.hpp"

namespace troupe::scheduler {

/// Each group changes as `reconfigure` says for its own replicas, as lists of devices, cut anew
/// from templates of its layers (`TemplateSet::groups`): devices are borrowed and merged within a
/// group first. One that then has too few for a single replica takes devices of the group that has
/// most beyond its own minimum, from the tail of its largest replica. A replica whose devices stay
/// the same keeps its stages; one that would have more than any template has is shortened.
///
/// Devices without work (of nodes that join, and of others that have some) are dealt to groups by
/// their work, so that all are used wherever there is a way (`deal_devices`); or all go to one.
/// There is a layout for each way, first the dealt one, then in the order of groups; what uses
/// fewer devices than another is left out. What no number of replicas can use has no work: devices
/// that join, or are left of a broken replica.
///
/// Where a device works for several groups (encoders on the llm's devices), devices need not be
/// taken away from one to be of use to another: those without work go to all groups, or to one, and
/// a group with too few for a single replica works on all that are there. Replicas may have as few
/// devices as templates allow; as these do not know what other groups keep on the same devices,
/// layouts whose replicas have 2, 4, ... times as many follow, up to the smallest that there was.
/// Groups that share nodes and no devices do the same where they cannot stay apart.
///
/// Each layout stands once; at most (groups + 1) x (2 + log2 of a replica's devices) of them.
/// Replicas of one group that share devices change together, as if they were one: as they stand
/// where their devices stay the same, else a single one is cut over those that are left.
///
/// None where a group has no templates, or devices are too few.
std::vector<HandLayout> group_layouts(const RelayoutRequest& request);

}  // namespace troupe::scheduler
