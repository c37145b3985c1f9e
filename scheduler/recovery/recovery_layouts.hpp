// Which pipelines a job runs on the nodes it has left, and what its state costs to move: what a
// replay of failures asks for at every event.
//
// Pure; thread-safe. Two ways to lay out: Oobleck's (instantiation, all nodes at work) and the
// uniform one of systems that restart from a checkpoint (equal pipelines, what does not fit idles).

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/vocabulary/result.hpp"
#include "scheduler/recovery/pipeline_templates.hpp"
#include "scheduler/recovery/reconfigure.hpp"
#include "scheduler/recovery/what_if.hpp"

namespace troupe::scheduler {

/// The model and the batch; the same for every layout of a job.
struct RecoveryModel {
  TemplateSet templates;
  std::vector<std::int64_t> layer_bytes;  ///< Parameters and optimizer state of each layer.
  std::int64_t fault_tolerance = 0;
  std::int64_t global_batch = 1;
  std::int64_t microbatch_size = 1;
};

/// Pipelines at work, and nodes that wait until they are of use.
struct NodeLayout {
  std::vector<RankList> pipelines;
  RankList idle;
  double iteration_ms = 0;

  friend bool operator==(const NodeLayout&, const NodeLayout&) = default;
};

/// The best layout of as many of these nodes as a combination of templates can use, with at least
/// f + 1 pipelines; the nodes with the highest ids idle. Pipelines take nodes in ascending order.
///
/// Errors:
/// - infeasible: no number of nodes from (f + 1) x n0 up to those given can be used.
/// - invalid_argument: as `instantiate`.
Result<NodeLayout> combined_layout(const RecoveryModel& model, RankList nodes);

/// The fastest layout of equal pipelines of one template, at least one; nodes left over idle. Ties
/// go to more pipelines. None where the nodes hold no pipeline, or the batch has not a microbatch
/// for each.
/// REQUIRES: the batch is a multiple of the microbatch size.
std::optional<NodeLayout> uniform_layout(const RecoveryModel& model, RankList nodes);

/// Bytes of the whole state, and of the node that holds most of it in a pipeline of this many
/// nodes. REQUIRES: there is a template of that size, and every layer of it has a size.
std::int64_t state_bytes(const RecoveryModel& model);
std::int64_t largest_node_bytes(const RecoveryModel& model, std::size_t node_count);

/// Largest number of bytes that one node sends or receives.
std::int64_t largest_transfer(const CopyPlan& plan, const std::vector<std::int64_t>& layer_bytes);

}  // namespace troupe::scheduler
