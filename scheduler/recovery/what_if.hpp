// What a loss or a join would do to a running job: new pipelines, state to copy, and the predicted
// change of an iteration. The core of `troupe whatif`.
//
// Pure; thread-safe. Joins the parts that recovery uses: `reconfigure`, `plan_copies`,
// `distribute`.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/vocabulary/result.hpp"
#include "scheduler/recovery/pipeline_templates.hpp"
#include "scheduler/recovery/reconfigure.hpp"
#include "scheduler/state/copy_plan.hpp"

namespace troupe::scheduler {

/// A pipeline that runs stages of its own instead of a template.
struct RunningPipeline {
  std::vector<RankList> holders;  ///< Per layer: nodes of it that have the layer.
  double microbatch_ms = 0;       ///< As `PipelineTemplate::microbatch_ms`.
};

struct WhatIfRequest {
  TemplateSet templates;
  std::vector<std::int64_t> layer_bytes;  ///< Parameters and optimizer state of each layer.
  std::vector<RankList> pipelines;        ///< Node ids; a pipeline of n nodes runs template n.
  std::int64_t fault_tolerance = 0;
  std::int64_t global_batch = 1;
  std::int64_t microbatch_size = 1;
  RankList lost;    ///< Node ids.
  RankList joined;  ///< Node ids.
  /// Per pipeline what it really runs, and goes on running while its nodes stay the same; empty:
  /// templates.
  std::vector<RunningPipeline> running = {};
  std::vector<std::string> layer_names = {};  ///< For errors; empty: numbers.
  /// Of `plan_copies`. Callers that ask for hundreds of changes give less.
  std::int64_t copy_search_steps = kCopySearchSteps;
};

/// One configuration: its pipelines in order with the microbatches of each.
struct Configuration {
  std::vector<RankList> pipelines;
  std::vector<std::int64_t> microbatches;
  double iteration_ms = 0;  ///< Largest N_i x T_i.
};

/// What became of a pipeline.
enum class PipelineChange : std::uint8_t {
  kept,            ///< The same nodes.
  reinstantiated,  ///< Fewer nodes: it lost some, or gave some to others.
  borrowed,        ///< Has nodes of a pipeline that goes on without them.
  merged,          ///< All that is left of several pipelines.
  grown,           ///< Its nodes and joined ones.
  created,         ///< Joined nodes alone.
};
std::string_view to_string(PipelineChange change);

/// A pipeline of the new configuration: where its nodes come from.
struct PipelineOrigin {
  PipelineChange change = PipelineChange::kept;
  std::vector<std::size_t> sources;  ///< Indices of earlier pipelines, ascending.

  friend bool operator==(const PipelineOrigin&, const PipelineOrigin&) = default;
};

struct WhatIf {
  Configuration before;
  Configuration after;
  std::vector<PipelineOrigin> origins;  ///< Per pipeline of `after`.
  CopyPlan copies;                      ///< Items are layers, ranks are nodes.
};

/// Errors:
/// - infeasible: as `reconfigure`, `plan_copies` (layers that no survivor holds) and `distribute`;
///   or a pipeline has a node count without a template (the fix names the nearest).
/// - invalid_argument: as those functions; fewer layer sizes than the templates have layers, or
///   `running` of another size than `pipelines`.
Result<WhatIf> what_if(const WhatIfRequest& request);

/// The same where the caller says which pipelines there will be; `joined` is not read.
///
/// Errors: as `what_if`, without those of `reconfigure`. A layer that no survivor holds is
/// infeasible with `where` = "holders".
Result<WhatIf> change_pipelines(const WhatIfRequest& request, std::vector<RankList> after);

}  // namespace troupe::scheduler
