// Pipeline templates of a model whose layers have been measured, and a template as stages.
//
// Pure.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "runtime/vocabulary/hand_layout.hpp"
#include "runtime/vocabulary/model_graph.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/layout/auto_layout.hpp"
#include "scheduler/recovery/pipeline_templates.hpp"

namespace troupe::scheduler {

/// Layers counted through the model, as templates number them.
std::vector<LayerId> layers_of(const ModelGraph& model);
/// The same of these modules alone, ascending: of a module group.
std::vector<LayerId> layers_of(const ModelGraph& model, const std::vector<ModuleId>& modules);

/// Templates of up to `nodes` nodes with layers that weigh what the request's samples make them
/// weigh, dealt to `pipelines` pipelines. Stages span devices of a node only where the request is
/// `planned_only`. Errors: as `make_templates_in_flight` and `LayoutScorer::weights`.
Result<TemplateSet> layout_templates(const AutoLayoutRequest& request, const ModelGraph& model,
                                     std::int32_t pipelines, std::int64_t nodes,
                                     std::int64_t fault_tolerance);

/// Whether module groups have numbers of replicas of their own, so that a pipeline is no complete
/// copy of the model by itself.
bool has_groups_of_their_own(const ParallelPlan& plan);

/// The module groups that each device has stages of. Cost: O(stages x log devices).
std::map<DeviceSlot, std::set<ModuleGroupId>> groups_by_device(const ParallelPlan& plan);

/// Templates of each module group's layers alone, for replicas of its own: those that `plan` has.
/// Each of their nodes is a single device of the cluster's `nodes`, because a group may have some
/// devices of a node and not others; stages span none. A group that cannot be cut has no templates.
/// Errors: as `LayoutScorer::weights`.
Result<std::vector<TemplateSet>> group_templates(const AutoLayoutRequest& request,
                                                 const ParallelPlan& plan, std::int64_t nodes);

/// Stages as they stand, as a job file would write them.
std::vector<HandStage> as_written(const ParallelPlan& plan, const std::vector<StageId>& stages);

/// A template of these layers on these nodes, as many as it has, with a stage of each of
/// `stage_kinds` where a device gets layers of several (`cut_by_kinds`); none where a stage spans
/// devices, as none of `group_templates` does.
std::optional<std::vector<HandStage>> stages_of_template(
    const ModelGraph& model, const std::vector<LayerId>& layers, const PipelineTemplate& made,
    const std::vector<std::int32_t>& nodes, const std::vector<std::int32_t>& stage_kinds);

}  // namespace troupe::scheduler
