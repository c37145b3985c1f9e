// The supervisor's actors, which take note of what they are told and do nothing else.

#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/head/recorder_actor.hpp"
#include "actors/link/protocol.hpp"
#include "actors/node/keeper_actor.hpp"

namespace troupe::actors {

/// What a fake scheduler was told.
struct SchedulerSeen {
  LearnedCosts learned;      ///< What it says where a save asks.
  bool is_planning = false;  ///< It does not come to say it.
  std::vector<Configuration> begins;
  std::vector<std::int64_t> next;  ///< First batch of each of them.
  int asked = 0;
  int told = 0;                    ///< What steps took.
  int asked_layouts = 0;           ///< Before the begin of each.
  std::map<NodeId, double> times;  ///< As nodes take them for the same work, said last.
};

inline SchedulerActor::behavior_type fake_scheduler(SchedulerActor::pointer self,
                                                    SchedulerSeen* seen) {
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

/// What a fake keeper was told.
struct KeeperSeen {
  std::vector<WrittenCheckpoint> written;
  std::vector<std::string> discarded;
};

inline KeeperActor::behavior_type fake_keeper(KeeperActor::pointer, KeeperSeen* seen) {
  return {
      [seen](const WrittenCheckpointPtr& x) { seen->written.push_back(*x); },
      [seen](stop_atom, const std::string& x) { seen->discarded.push_back(x); },
  };
}

/// What a fake recorder was told. Where `slow`, it answers `finish` when it is told to `begin`
/// again; where `stuck`, it cannot collect; where `busy`, it collects until then.
struct RecorderSeen {
  std::vector<PlannedBatchPtr> batches;
  std::vector<StepRecordPtr> steps;
  std::vector<observe::RunEvent> events;
  std::vector<observe::RunEvent> begun;  ///< The same while they were under way.
  std::vector<Collection> collections;
  bool slow = false;
  bool stuck = false;
  bool busy = false;
  int syncs = 0;
  bool syncs_late = false;  ///< Not before it is told to begin again.
  std::optional<caf::typed_response_promise<save_atom>> synced;
  std::optional<caf::typed_response_promise<finish_atom>> promise;
  std::optional<caf::typed_response_promise<finish_atom>> collected;
};

inline RecorderActor::behavior_type fake_recorder(RecorderActor::pointer self, RecorderSeen* seen) {
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
