// Pipeline templates of a model whose layers have been measured, and a template as stages.
//
// Pure.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/vocabulary/hand_layout.hpp"
#include "runtime/vocabulary/model_graph.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/layout/auto_layout.hpp"
#include "scheduler/recovery/pipeline_templates.hpp"

namespace troupe::scheduler {

/// Layers counted through the model, as templates number them.
std::vector<LayerId> layers_of(const ModelGraph& model);

/// Templates of up to `nodes` nodes with layers that weigh what the request's samples make them
/// weigh, dealt to `pipelines` pipelines. Stages span devices of a node only where the request is
/// `planned_only`. Errors: as `make_templates_in_flight` and `LayoutScorer::weights`.
Result<TemplateSet> layout_templates(const AutoLayoutRequest& request, const ModelGraph& model,
                                     std::int32_t pipelines, std::int64_t nodes,
                                     std::int64_t fault_tolerance);

/// A template on these nodes, as many as it has; none where a stage spans devices.
std::optional<std::vector<HandStage>> stages_of_template(const ModelGraph& model,
                                                         const PipelineTemplate& made,
                                                         const std::vector<std::int32_t>& nodes);

}  // namespace troupe::scheduler
