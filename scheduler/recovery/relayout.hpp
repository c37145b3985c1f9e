// The layout with which a job goes on when nodes are lost or join.
//
// Pure; the same answer on every node.

#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "runtime/vocabulary/hand_layout.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/layout/place_by_hand.hpp"
#include "scheduler/recovery/pipeline_templates.hpp"
#include "scheduler/state/standby_holders.hpp"

namespace troupe::scheduler {

struct RelayoutRequest {
  const ParallelPlan& plan;      ///< What runs, or ran until nodes were lost.
  ClusterShape cluster;          ///< All places for nodes.
  const TemplateSet& templates;  ///< Of pipelines of whole nodes, and of groups; may have none.
  std::int64_t global_batch = 1;
  Tolerance tolerance = {};
  std::set<NodeId> nodes;  ///< That are there: without lost ones, with those that joined.
  /// Beside these: get no stage, and stand by.
  std::set<NodeId> spares = {};
  bool fills_spares = true;  ///< With all they have room for; else they keep what they keep.
  /// Wants all there are: what stays as it is, or is fastest, may have no room for what is next.
  bool looks_further = false;
};

struct Relayout {
  ParallelPlan plan;
  std::set<NodeId> idle;  ///< Nodes that are there, have no stage and stand by for nothing.
};

/// What survives whole stays as it is, so that little moves; the rest is made anew. In this order:
///
/// 1. Replicas with a stage on a lost node go; where nobody would idle and one more of each group
///    than nodes may be lost are left, that is all. Of groups with replicas of their own neither
///    may any device that is there work for fewer of them than before, or have no stage.
/// 2. Where groups have replicas of their own: each group by itself (`group_layouts`), then as in
///    1, with idle nodes. Replicas of different groups stay apart where they were, a group that
///    lost nothing keeps its stages.
/// 3. Pipelines of one replica per group, each on nodes of its own, change as `reconfigure` says
///    (reinstantiate, borrow, merge; Oobleck, dissertation 2.5.1). Changed ones take templates.
///    Where too few nodes are left for the tolerance, the largest that still works counts.
/// 4. The best combination of templates on the nodes that are there (Oobleck, 2.4.2); after 2 only
///    where nothing of it works.
/// 5. As in 1, with idle nodes.
/// 6. With `looks_further`, where the batch has a sample for each: pipelines from templates, to
/// which all nodes are dealt evenly, of 1, 2, 3, 4, 6, 8, 12... times the least nodes, or more.
///
/// Then spare nodes stand by for what they have room for (`stand_by_on`), or for what they kept
/// before. Where that is not enough, standby holders are added, on all nodes that are there, as
/// many as the tolerance asks for or these nodes allow. Those that there were stay where they are
/// still needed, so that nothing moves.
///
/// All that work, each once, in this order: the first one is preferred where nothing is known of
/// the network. Where 1 holds, that alone, but with `looks_further`.
///
/// Errors: infeasible: none of these works; the message is that of the last one.
Result<std::vector<Relayout>> relayouts(const RelayoutRequest& request);

/// A layout by hand on the nodes that are there, with standby holders as above. Templates and batch
/// of the request do not matter.
///
/// Errors: as `place_by_hand`; REQUIRES of the layout's nodes that they are there.
Result<Relayout> relayout_by_hand(const RelayoutRequest& request, const HandLayout& layout);

}  // namespace troupe::scheduler
