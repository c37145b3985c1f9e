#include "actors/head_colleagues.hpp"

#include "actors/keeper_actor.hpp"
#include "actors/scheduler_actor.hpp"

namespace troupe::actors {

SpawnColleagues head_colleagues(HeadResources& resources) {
  return [&resources](caf::actor_system& system, const SupervisorActor& supervisor,
                      std::int64_t total_steps) -> Colleagues {
    const auto& train = resources.setup.job.train;
    const observe::TrainingGoal goal{
        total_steps, train.duration.tokens(),
        data::batches_per_epoch(resources.data.records, train.global_batch_size),
        resources.resume.progress.tokens};
    return {
        system.spawn<caf::detached>(scheduler, &resources.setup, resources.data.records,
                                    resources.resume.progress, supervisor),
        system.spawn<caf::detached>(recorder, resources.folder, resources.console, resources.logger,
                                    goal, resources.transport.get(), supervisor),
        system.spawn<caf::detached>(keeper, resources.setup.job.checkpoint.keep_last, supervisor)};
  };
}

}  // namespace troupe::actors
