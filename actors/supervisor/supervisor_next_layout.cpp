#include "actors/supervisor/supervisor_next_layout.hpp"

#include <algorithm>
#include <utility>

#include "actors/supervisor/supervisor_regrouping.hpp"
#include "actors/supervisor/supervisor_state.hpp"
#include "engine/layout/batch_memory.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::actors {

Status check_room(const SupervisorState& state, const ParallelPlan& plan) {
  const engine::JobSetup& setup = state.resources->setup;
  if (const RefusedBatchPtr& refused = state.refusals.due) {
    if (std::ranges::find(state.refusals.layouts, plan) != state.refusals.layouts.end())
      return refused->why;
    return engine::check_batch_memory(setup, plan, refused->samples);
  }
  if (!state.newest_batch) return Done{};
  return engine::check_batch_memory(setup, plan, state.newest_batch->iteration.samples);
}

Result<scheduler::NextLayout> next_layout_of(const SupervisorState& state,
                                             const StatePlacement& left,
                                             const std::set<NodeId>& nodes) {
  scheduler::ChangingJob changing = changing_job(state, left);
  auto next = scheduler::next_layout(changing, nodes);
  if (!next.ok() || check_room(state, next.value().plan).ok()) return next;
  changing.fits = [&state, fits = std::move(changing.fits)](const ParallelPlan& plan) {
    Status can = fits(plan);
    return can.ok() ? check_room(state, plan) : can;
  };
  return scheduler::next_layout(changing, nodes);
}

}  // namespace troupe::actors
