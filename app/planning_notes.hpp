// What planning commands say about a layout beside the layout itself: the smallest batch, pipeline
// templates, suggestions.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/plan_step.hpp"
#include "app/planning.hpp"
#include "scheduler/recovery/pipeline_templates.hpp"

namespace troupe::app {

/// What else there is to say about a layout.
struct PlanningNotes {
  std::int64_t b_min = 0;  ///< Smallest batch whose mix of work is that of the data; 0: no mix.
  std::optional<scheduler::TemplateSet> templates;  ///< Where failures are to be survived.
  std::string no_templates;  ///< Why there are none although they are wanted.
  std::vector<Suggestion> suggestions;
};

/// Errors: as `profile_batch`.
Result<PlanningNotes> planning_notes(const Planning& planning, const scheduler::AutoLayout& layout);

/// Pipeline templates of the job for up to `nodes` nodes, for one mean microbatch where the batch
/// is dealt to so many pipelines. Layers may be split over the devices of a node where the profile
/// has such degrees; a pipeline holds the microbatches that it has in flight, at most all of them.
/// Errors: as `predicted_costs`, `make_templates_in_flight`.
Result<scheduler::TemplateSet> planned_templates(const Planning& planning, std::int32_t pipelines,
                                                 std::int64_t nodes, std::int64_t fault_tolerance);

}  // namespace troupe::app
