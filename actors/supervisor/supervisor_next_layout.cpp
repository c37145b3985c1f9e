#include "actors/supervisor/supervisor_next_layout.hpp"

#include <utility>

#include "actors/supervisor/supervisor_regrouping.hpp"
#include "actors/supervisor/supervisor_state.hpp"
#include "engine/layout/batch_memory.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe::actors {

Result<scheduler::NextLayout> next_layout_of(const SupervisorState& state,
                                             const StatePlacement& left,
                                             const std::set<NodeId>& nodes) {
  scheduler::ChangingJob changing = changing_job(state, left);
  auto next = scheduler::next_layout(changing, nodes);
  if (!next.ok() || !state.newest_batch) return next;
  const auto has_room = [&state](const ParallelPlan& plan) {
    return engine::check_batch_memory(state.resources->setup, plan,
                                      state.newest_batch->iteration.samples);
  };
  if (has_room(next.value().plan).ok()) return next;
  changing.fits = [&has_room, fits = std::move(changing.fits)](const ParallelPlan& plan) {
    Status can = fits(plan);
    return can.ok() ? has_room(plan) : can;
  };
  return scheduler::next_layout(changing, nodes);
}

}  // namespace troupe::actors
