#include "actors/supervisor/supervisor_start.hpp"

#include <algorithm>

namespace troupe::actors {

void begin(SupervisorSelf self) {
  auto& state = self->state;
  HeadResources& resources = *state.resources;
  const job::Job& job = resources.setup.job;
  state.phase = SupervisorState::Phase::joining;
  const JobProgress& before = resources.resume.progress;
  state.skipped.emplace(job.train.max_nonfinite_in_a_row, resources.data.records, before.skipped);
  state.progress = before;
  state.progress.bad.clear();
  state.progress.data = engine::data_order(job, resources.data, resources.resume);
  state.length.emplace(job, data::Epochs(state.progress.data.epochs));
  for (const auto& [id, batch] : before.bad) state.bad_ids.emplace(id, batch);
  state.planned_steps = before.step;
  state.saves.last_step = resources.resume.is_live ? resources.resume.saved_step : before.step;
  state.planned_tokens = before.tokens;
  state.configuration.epoch_number = before.generation;
  state.last_planned = before.step > 0 && state.length->reached(before.step, before.tokens);
  state.saves.last_begun = now(self);
  state.deadline = now(self) + seconds(resources.tries > 0 ? std::max(job.cluster.join_timeout_s,
                                                                      job.recovery.wait_for_nodes_s)
                                                           : job.cluster.join_timeout_s);
  state.last_finish = now(self);
  state.colleagues =
      state.spawn(self->system(), caf::actor_cast<SupervisorActor>(self), state.length->steps());
}

}  // namespace troupe::actors
