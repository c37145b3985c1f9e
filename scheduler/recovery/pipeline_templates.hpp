// Pipeline templates (Oobleck, dissertation 2.4.1): for every node count that a pipeline may have,
// the best way to cut the layers into stages and to give the stages GPUs.
//
// Pure; thread-safe. What is minimised is
//   iteration_ms = sum of the stages' times + (Nb - 1) x the slowest stage
// with one Nb for every number of stages. The printed T1 + T2 + T3 is reported, not minimised: with
// unequal stages it falls below the work bound, and its Nb = 4S grows with the stages it compares
// (cases.md). For stages in 1F1B order the value above is reached when the slowest stage is last.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "runtime/vocabulary/model_graph.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::scheduler {

/// One layer on one GPU. On k GPUs of a node it takes (forward + backward) / k + sync(k) and
/// memory / k.
struct TemplateLayer {
  double forward_ms = 0;   ///< >= 0.
  double backward_ms = 0;  ///< >= 0; after freezing.
  Bytes memory;            ///< State and activations; >= 0.
  /// Collectives of a layer split over k GPUs, by k. A stage uses k >= 2 GPUs only if each of its
  /// layers has an entry; one GPU needs none.
  std::map<std::int32_t, double> in_node_sync_ms;
};

struct TemplateRequest {
  std::vector<TemplateLayer> layers;
  std::int64_t node_count = 1;
  std::int64_t gpus_per_node = 1;
  std::int64_t fault_tolerance = 0;  ///< f: the job survives f losses at once with a whole replica.
  Bytes device_memory;
  std::optional<std::int64_t> min_nodes;     ///< n0; none: the fewest nodes that hold the model.
  std::optional<std::int64_t> microbatches;  ///< Nb; none: 4 x min(layers, nodes x gpus_per_node).
};

struct TemplateStage {
  LayerRange layers;
  std::int32_t node = 0;       ///< Within the pipeline.
  std::int32_t gpu_count = 1;  ///< Consecutive GPUs of that node.

  friend bool operator==(const TemplateStage&, const TemplateStage&) = default;
};

struct PipelineTemplate {
  std::int32_t node_count = 0;
  double iteration_ms = 0;
  double microbatch_ms = 0;                ///< iteration_ms / Nb: what `distribute` compares.
  double t1_ms = 0, t2_ms = 0, t3_ms = 0;  ///< Eq. 2.1-2.3 as printed, with the same Nb.
  std::vector<TemplateStage> stages;       ///< GPUs are used in order, all of them.
};

struct TemplateSet {
  std::int32_t min_nodes = 0;               ///< n0.
  std::vector<PipelineTemplate> templates;  ///< Ascending nodes, from n0 to at most N - f x n0.
  std::vector<double> layer_ms;             ///< Of a microbatch on one GPU: what each layer takes.
  std::int64_t microbatches = 1;            ///< Nb, of a pipeline on all nodes.
  /// Of a layout whose module groups have replicas of their own: per group, of its layers alone, on
  /// nodes of one device, that stand for any devices of the cluster.
  std::vector<TemplateSet> groups = {};
  /// Per module of the model, as `cut_by_kinds` takes them: what a device gets is cut by them where
  /// a template becomes a layout. Which layers it gets is chosen without.
  std::vector<std::int32_t> stage_kinds = {};
};

/// Templates for every size n0 .. N - f x n0 that has one. A size has none when its GPUs cannot all
/// be used: more nodes than layers, or more stages than layers because no larger k is allowed.
///
/// The result is the true optimum, up to a rounding of times to 2^-48 of the model's work. Ties go
/// to the smaller slowest stage; among those the choice is fixed but not specified.
/// Cost: 96 layers on 24 nodes x 8 GPUs take some tens of milliseconds; memory grows with
/// layers x GPUs.
///
/// Errors:
/// - invalid_argument: a count below 1, f < 0, a time that is negative or not finite, more layers
///   or GPUs than `kTemplateStatesMax` allows (the fix names the block size that is possible).
/// - infeasible: a layer larger than the usable GPUs of a node; no size up to N holds the model;
///   `min_nodes` has no template; N < (f + 1) x n0. The message names the rule, the fix the nearest
///   choice that works.
Result<TemplateSet> make_templates(const TemplateRequest& request);

/// Layers whose memory holds the activations of this many microbatches (>= 1).
using LayersInFlight = std::function<Result<std::vector<TemplateLayer>>(std::int64_t in_flight)>;

/// Templates of pipelines that hold what is under way: as many microbatches as there are GPUs,
/// which is what the first stage of as many stages has in flight. More stages have fewer layers
/// each, so what the fewest nodes hold that hold it, all larger pipelines do.
///
/// `layers` and `min_nodes` of the request are not read. REQUIRES: more in flight needs no less
/// memory. Cost: `make_templates` for some numbers of nodes up to that.
///
/// Errors:
/// - as `make_templates` and `layers`.
/// - infeasible: no pipeline of up to `node_count` nodes holds its microbatches.
Result<TemplateSet> make_templates_in_flight(TemplateRequest request, const LayersInFlight& layers);

/// Bound on layers x GPUs that keeps planning within seconds and some tens of megabytes.
inline constexpr std::int64_t kTemplateStatesMax = 500'000;
inline constexpr std::int64_t kTemplateLayersMax = 2048;

}  // namespace troupe::scheduler
