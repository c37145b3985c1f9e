// Turns a layout that a user wrote by hand, or none at all, into a checked `ParallelPlan`.
//
// Pure. Every process that sees the same input builds the same plan.

#pragma once

#include <cstdint>

#include "runtime/vocabulary/hand_layout.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/state/standby_holders.hpp"

namespace troupe::scheduler {

/// The machines a plan is made for: nodes 0..nodes-1 with equally many devices each. Device d of
/// the plan is device d % devices_per_node of node d / devices_per_node.
struct ClusterShape {
  std::int32_t nodes = 1;             ///< >= 1.
  std::int32_t devices_per_node = 1;  ///< >= 1.

  std::int32_t devices() const { return nodes * devices_per_node; }
};

/// What becomes of a device without a stage, that is not on standby for anything either. Left out,
/// it is not in the plan, and others count on without it.
enum class IdleDevices : std::uint8_t { refused, left_out };

/// Checks a layout and completes it.
///
/// - A projector that a pipeline does not name sits beside the last layer of its encoder (of the
///   first one in module order where several feed it).
/// - An entry that names encoder-side modules and the llm becomes two stages on its device.
/// - Stages of a pipeline are put in topological order; independent ones keep the written order.
///   Runs of a stage stand in module order, adjacent runs of one module are joined.
/// - Several entries may name one device, in one pipeline or in several, also as ranks of grids of
///   other sizes; only what trains the same parameters must stand on the same grid or apart.
/// - Of the nodes without a stage the last `tolerance.spares` stand by for all that they have room
///   for (`stand_by_on`).
/// - Where nodes may be lost, devices of the cluster, also those without a stage, become standby
///   holders (standby_holders.hpp) until everything is on as many nodes as `tolerance` asks for.
/// - Every device must have a stage or stand by, unless `idle` says otherwise: a machine that would
///   idle is most likely a slip.
/// - Groups stand in model order, a tied parameter right after its first layer's own group. Two
///   layers of one stage that share a tied parameter are two uses.
///
/// An empty layout means `default_layout`.
///
/// Errors (all invalid_argument; `where` is the job key, such as
/// `parallel.pipelines[0].stages[2]`):
/// - a node, device or module that does not exist, a range outside the module, an empty entry;
/// - devices that are not tp x cp ones, each once, or grids that cross as said above;
/// - a layer placed twice or not at all in a pipeline: the message lists the module's layers by
///   name;
/// - stages that wait for each other in a circle;
/// - a device without a stage.
/// Or infeasible: as `add_standbys`.
Result<ParallelPlan> place_by_hand(const ModelGraph& model, const HandLayout& layout,
                                   const ClusterShape& cluster,
                                   IdleDevices idle = IdleDevices::refused,
                                   const Tolerance& tolerance = {});

/// One pipeline over all devices in order: the layers, modules one after the other, are cut into as
/// many runs of nearly equal layer count as there are devices (longer runs first). Projectors are
/// not counted; they ride with their encoder's last layer.
///
/// Errors:
/// - invalid_argument: no nodes or devices, or more devices than layers to share out.
Result<HandLayout> default_layout(const ModelGraph& model, const ClusterShape& cluster);

}  // namespace troupe::scheduler
