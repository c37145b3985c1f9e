// What a loss or a join would do to a running job: new pipelines, state to copy, and the predicted
// change of an iteration. The core of `troupe whatif`.
//
// Pure; thread-safe. Joins the parts that recovery uses: `reconfigure`, `plan_copies`,
// `distribute`.

#pragma once

#include <cstdint>
#include <vector>

#include "runtime/vocabulary/result.hpp"
#include "scheduler/copy_plan.hpp"
#include "scheduler/pipeline_templates.hpp"
#include "scheduler/reconfigure.hpp"

namespace troupe::scheduler {

struct WhatIfRequest {
  TemplateSet templates;
  std::vector<std::int64_t> layer_bytes;  ///< Parameters and optimizer state of each layer.
  std::vector<RankList> pipelines;        ///< Node ids; a pipeline of n nodes runs template n.
  std::int64_t fault_tolerance = 0;
  std::int64_t global_batch = 1;
  std::int64_t microbatch_size = 1;
  RankList lost;    ///< Node ids.
  RankList joined;  ///< Node ids.
};

/// One configuration: its pipelines in order with the microbatches of each.
struct Configuration {
  std::vector<RankList> pipelines;
  std::vector<std::int64_t> microbatches;
  double iteration_ms = 0;  ///< Largest N_i x T_i.
};

struct WhatIf {
  Configuration before;
  Configuration after;
  CopyPlan copies;  ///< Items are layers, ranks are nodes.
};

/// Errors:
/// - infeasible: as `reconfigure`, `plan_copies` (layers that no survivor holds) and `distribute`;
///   or a pipeline has a node count without a template (the fix names the nearest).
/// - invalid_argument: as those functions; or fewer layer sizes than the templates have layers.
Result<WhatIf> what_if(const WhatIfRequest& request);

/// The same where the caller says which pipelines there will be; `joined` is not read.
///
/// Errors: as `what_if`, without those of `reconfigure`. A layer that no survivor holds is
/// infeasible with `where` = "holders".
Result<WhatIf> change_pipelines(const WhatIfRequest& request, std::vector<RankList> after);

}  // namespace troupe::scheduler
