#include "tests/actors/fake_head_actors.hpp"

namespace troupe::actors {

SchedulerActor::behavior_type fake_scheduler(SchedulerActor::pointer self, SchedulerSeen* seen) {
  return {
      [seen](begin_atom, const Configuration& x, const std::vector<caf::strong_actor_ptr>&,
             std::int64_t next) {
        seen->begins.push_back(x);
        seen->next.push_back(next);
      },
      [seen](layout_atom) { ++seen->asked_layouts; },
      [seen](next_atom) { ++seen->asked; },
      [](const engine::BatchReport&) {},
      [seen](speed_atom, NodeId node, double times) { seen->times[node] = times; },
      [seen](const PlannedBatchPtr&, const StepRecordPtr&) { ++seen->told; },
      [self, seen](save_atom, std::int64_t number) {
        if (seen->is_planning) return;
        self->send(caf::actor_cast<SupervisorActor>(self->current_sender()), save_atom::value,
                   number, std::make_shared<const LearnedCosts>(seen->learned));
      },
  };
}

KeeperActor::behavior_type fake_keeper(KeeperActor::pointer, KeeperSeen* seen) {
  return {
      [seen](const WrittenCheckpointPtr& x) { seen->written.push_back(*x); },
      [seen](stop_atom, const std::string& x) { seen->discarded.push_back(x); },
  };
}

RecorderActor::behavior_type fake_recorder(RecorderActor::pointer self, RecorderSeen* seen) {
  return {
      [seen](begin_atom, const Configuration&) {
        if (seen->collected) seen->collected->deliver(finish_atom::value);
        if (seen->synced && seen->syncs_late) seen->synced->deliver(save_atom::value);
        if (seen->promise) seen->promise->deliver(finish_atom::value);
      },
      [seen](const PlannedBatchPtr& x) { seen->batches.push_back(x); },
      [seen](const StepRecordPtr& x) { seen->steps.push_back(x); },
      [seen](const RunEventPtr& x) {
        (x->is_under_way ? seen->begun : seen->events).push_back(*x);
      },
      [self, seen](collect_atom, Collection x, EpochNumber,
                   const OffersPtr&) -> caf::result<finish_atom> {
        seen->collections.push_back(x);
        if (seen->busy) {
          seen->collected = self->make_response_promise<finish_atom>();
          return *seen->collected;
        }
        if (seen->stuck) return caf::make_error(caf::sec::request_timeout);
        return finish_atom::value;
      },
      [self, seen](save_atom) -> caf::result<save_atom> {
        ++seen->syncs;
        seen->synced = self->make_response_promise<save_atom>();
        if (!seen->syncs_late) seen->synced->deliver(save_atom::value);
        return *seen->synced;
      },
      [self, seen](finish_atom) -> caf::result<finish_atom> {
        seen->promise = self->make_response_promise<finish_atom>();
        if (!seen->slow) seen->promise->deliver(finish_atom::value);
        return *seen->promise;
      },
  };
}

}  // namespace troupe::actors
