// How planning commands print a layout: table, reasons, templates, timeline; and the same as JSON.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "app/plan_step.hpp"
#include "app/planning.hpp"
#include "app/planning_notes.hpp"

namespace troupe::app {

/// Replicas of the llm: among so many a batch is dealt.
std::int64_t llm_replicas(const ParallelPlan& plan);

/// `2 pipelines`, or `replicas: 3 of vision, 2 of llm` where module groups have numbers of their
/// own.
std::string copies_text(const ParallelPlan& plan);

/// What is planned for, and on which costs: one line without its end.
std::string cluster_text(const Planning& planning);

/// One row per stage: layers, memory, work, idle share; at most 40. Below, which of them are run by
/// kinds of the user's.
void print_stages(const Planning& planning, const scheduler::AutoLayout& layout);

/// `cluster`, `costs`, `chosen`, `pipelines`, `replicas` (by group), `microbatches`, `schedule`.
Json planning_json(const Planning& planning, const scheduler::AutoLayout& layout);
/// `stages`.
Json stages_json(const Planning& planning, const scheduler::AutoLayout& layout);

Json layout_json(const Planning& planning, const PlannedStep& planned, const PlanningNotes& notes);
/// Headline, table and drawing of the one step that stands for the layout.
void print_layout(const Planning& planning, const PlannedStep& planned, const PlanningNotes& notes);

/// `Planning::warnings`, each in lines of a narrow terminal.
void print_warnings(const std::vector<std::string>& warnings);

/// `one step, 12.3 ms`, what its letters mean, and the drawing.
void print_timeline(const std::string& what, const scheduler::AutoLayout& layout,
                    const PredictedBatch& batch);

/// One line per device, or for all that run a list together, as wide as the terminal: F forward, B
/// backward, r reduction, o optimizer.
std::string timeline_text(const scheduler::AutoLayout& layout, const PredictedBatch& batch);

}  // namespace troupe::app
