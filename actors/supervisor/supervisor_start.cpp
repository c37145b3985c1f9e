#include "actors/supervisor/supervisor_start.hpp"

#include <algorithm>

#include "actors/supervisor/supervisor_state.hpp"

namespace troupe::actors {

void begin(SupervisorSelf self) {
  auto& state = self->state;
  HeadResources& resources = *state.resources;
  const job::Job& job = resources.setup.job;
  JobProgress before = resources.resume.progress;
  before.data = engine::data_order(job, resources.data, resources.resume);
  const engine::TrainingLength length(job, data::Epochs(before.data.epochs));
  const engine::SkippedSteps skipped(job.train.max_nonfinite_in_a_row, resources.data.records,
                                     before.skipped);
  state.job.begin(StepLoop(before, length, skipped), before.generation);
  state.saves.last_step = resources.resume.is_live ? resources.resume.saved_step : before.step;
  state.saves.last_updates = resources.resume.is_live ? 0 : updates_in(before);
  state.saves.last_begun = now(self);
  state.deadline = now(self) + seconds(resources.tries > 0 ? std::max(job.cluster.join_timeout_s,
                                                                      job.recovery.wait_for_nodes_s)
                                                           : job.cluster.join_timeout_s);
  state.last_finish = now(self);
  state.actors = state.spawn(self->system(), caf::actor_cast<SupervisorActor>(self),
                             state.job.loop.total_steps());
}

}  // namespace troupe::actors
