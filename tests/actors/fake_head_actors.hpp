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

SchedulerActor::behavior_type fake_scheduler(SchedulerActor::pointer self, SchedulerSeen* seen);

/// What a fake keeper was told.
struct KeeperSeen {
  std::vector<WrittenCheckpoint> written;
  std::vector<std::string> discarded;
};

KeeperActor::behavior_type fake_keeper(KeeperActor::pointer, KeeperSeen* seen);

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

RecorderActor::behavior_type fake_recorder(RecorderActor::pointer self, RecorderSeen* seen);

}  // namespace troupe::actors
