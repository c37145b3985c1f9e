// How planning commands print a layout: table, reasons, templates, timeline; and the same as JSON.

#pragma once

#include <optional>
#include <string>

#include "app/planning.hpp"
#include "scheduler/pipeline_templates.hpp"

namespace troupe::app {

/// What else there is to say about a layout.
struct PlanningNotes {
  std::int64_t b_min = 0;  ///< Smallest batch whose mix of work is that of the data; 0: no mix.
  std::optional<scheduler::TemplateSet> templates;  ///< Where failures are to be survived.
  std::string no_templates;  ///< Why there are none although they are wanted.
};

/// Errors: as `profile_batch`.
Result<PlanningNotes> planning_notes(const Planning& planning, const scheduler::AutoLayout& layout);

/// Layers in model order as `make_templates` takes them, for one mean microbatch.
/// Errors: as `predicted_costs`.
Result<scheduler::TemplateRequest> template_request(const Planning& planning);

Json layout_json(const Planning& planning, const scheduler::AutoLayout& layout,
                 const PlanningNotes& notes);
void print_layout(const Planning& planning, const scheduler::AutoLayout& layout,
                  const PlanningNotes& notes, const PredictedBatch& batch);

/// One line per device, as wide as the terminal: F forward, B backward, r reduction, o optimizer.
std::string timeline_text(const Planning& planning, const scheduler::AutoLayout& layout,
                          const PredictedBatch& batch);

}  // namespace troupe::app
