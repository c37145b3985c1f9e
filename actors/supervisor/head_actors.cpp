#include "actors/supervisor/head_actors.hpp"

#include "actors/head/scheduler_actor.hpp"
#include "actors/node/keeper_actor.hpp"

namespace troupe::actors {

SpawnActors head_actors(HeadResources& resources) {
  return [&resources](caf::actor_system& system, const SupervisorActor& supervisor,
                      std::int64_t total_steps) -> ActorHandles {
    const auto& train = resources.setup.job.train;
    const DataOrder order =
        engine::data_order(resources.setup.job, resources.data, resources.resume);
    const observe::TrainingGoal goal{total_steps, train.duration.tokens(),
                                     engine::steps_per_epoch(order),
                                     resources.resume.progress.tokens};
    JobProgress before = resources.resume.progress;
    before.data = order;
    return {
        system.spawn<caf::detached>(scheduler, &resources.setup, std::move(before), supervisor),
        system.spawn<caf::detached>(recorder, resources.folder, resources.console, resources.logger,
                                    goal, resources.transport.get(), supervisor),
        system.spawn<caf::detached>(keeper, resources.setup.job.checkpoint.keep_last, supervisor)};
  };
}

}  // namespace troupe::actors
