// What the supervisor's functions work on: the values that decide, and what it needs to say so. Not
// for others: supervisor_actor.hpp is the supervisor seen from outside.

#pragma once

#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/coordination/coordinator.hpp"
#include "actors/coordination/left_state.hpp"
#include "actors/coordination/step_failures.hpp"
#include "actors/link/heartbeat.hpp"
#include "actors/link/shared_values.hpp"
#include "actors/node/stall_watch.hpp"
#include "actors/supervisor/gathering.hpp"
#include "actors/supervisor/layout_change.hpp"
#include "actors/supervisor/slow_nodes.hpp"
#include "actors/supervisor/supervisor_actor.hpp"
#include "runtime/state/checkpoint_manifest.hpp"
#include "scheduler/recovery/pipeline_templates.hpp"
#include "scheduler/recovery/wait_choice.hpp"

namespace troupe::actors {

/// What a device has been at for long.
struct KnownWork {
  DeviceId device;
  Time since;
  engine::FailedWork work;  ///< As what it counts where nobody waits for it any longer.
};

/// What it takes to reach the node in a place of the job.
struct NodeLink {
  caf::strong_actor_ptr handle;  ///< The node's actor, once it has joined.
  NodeReady ready;
  Silence silence;
  std::vector<KnownWork> long_work = {};          ///< Of its devices, as it said last.
  std::vector<engine::LongWait> long_waits = {};  ///< The same.
  std::vector<engine::SilentPeer> silent = {};    ///< Whom it does not hear, as it said last.
  bool is_heads_own = false;                      ///< The head started its process.
};

/// A checkpoint on its way.
struct Save {
  std::int64_t number = 0;
  JobProgress progress;
  std::filesystem::path partial;  ///< Where its files are written.
  std::map<DeviceSlot, std::vector<ShardKey>> writers;
  std::vector<state::MissingShard> missing;  ///< What nobody holds; then it is an incomplete save.
  std::map<DeviceSlot, SaveReport> shares;   ///< Of writers that are done.
  bool is_learned = false;                   ///< The scheduler has said what it learned.
  bool is_recorded = false;                  ///< Lines of its steps are on disk, or take too long.
  bool is_written = false;                   ///< All are; the keeper has it.
  bool is_called_late = false;               ///< That others wait for it was said.
  Time begun;
};

/// Checkpoints of this job: one at a time.
struct Saves {
  std::int64_t number = 0;  ///< Of those that were begun.
  std::optional<Save> running;
  /// The newest saves that failed, by number: who was still writing there may have made the folder
  /// again, and the keeper may complete one that took too long after all.
  std::map<std::int64_t, Save> failed;
  bool wanted = false;    ///< One is to begin as soon as it can.
  bool ends_job = false;  ///< The job ends with the last of them.
  bool is_stop_called_short = false;
  std::int64_t last_step = 0;  ///< Of the newest whole one; 0: there is none.
  /// Steps that had changed parameters by then; 0 where that is not known.
  std::int64_t last_updates = 0;
  Time last_begun;
  double written_ms = 0;  ///< What the newest one took; the next step's metrics say so.
};

/// A job that is to stop once its state is saved.
struct Stopping {
  std::string what;            ///< `stopped by SIGTERM during step 12`.
  std::int32_t exit_code = 0;  ///< Where nothing is saved.
  std::optional<Error> error;  ///< By which it ends then, if by one.
  Time until;                  ///< All must have ended.
  Time save_until;
  std::int64_t failed_step = 0;  ///< Whose state was tried to save.
  bool begins_again = false;     ///< From what it saves, where it may (`next_try`).
  std::string unsaved = {};      ///< Why it is not saved, once it cannot be.
  Orphans orphans = {};          ///< What is lost of the state since then.
  std::string part = {};         ///< What an incomplete save has and lacks, once it is there.
};

/// A node on its way, without which the job could go on but loses more samples.
struct ChosenWait {
  NodeId node;
  Time since;  ///< Of its welcome: another process in its place is another node.
  scheduler::WaitOutlook outlook;  ///< As it was when the wait was chosen.
};

/// A job without a layout, whose nodes hold all of its state and wait for others.
struct WaitingForNodes {
  Time begun;
  Time until;                        ///< Then it ends, or goes on where the wait was chosen.
  std::optional<ChosenWait> chosen;  ///< None: no layout works without others.
  std::string what;                  ///< `node 2 (host, pid 71) was lost: was killed by signal 9`.
  std::string why;                   ///< No layout works, and what would be enough; a clause.
  TemplateSetPtr tried_with;         ///< In vain.
};

/// A node that was lost after all tensors of the last collection had been offered: its own may have
/// come, and only the recorder knows. Counts if they have not.
struct LostHolder {
  NodeId node;
  Time since;   ///< Of its welcome: another process in its place is another node.
  Error error;  ///< Ends the job if it cannot do without the node.
};

/// The next batch, where it has no plan.
struct Refusals {
  RefusedBatchPtr due;                ///< On the layout that is up; null: nobody has said so.
  std::int64_t batch = -1;            ///< The last one that was refused.
  std::vector<ParallelPlan> layouts;  ///< On which it was.
};

/// What another head would begin without.
struct ForNextHead {
  std::optional<Time> asked;                        ///< When the scheduler was asked last.
  std::set<NodeId> slow;                            ///< Nodes that were slow then.
  std::shared_ptr<const HeadMemory> due = nullptr;  ///< To be written with the next step.
};

struct SupervisorState {
  HeadResources* resources = nullptr;
  SpawnActors spawn;
  std::optional<Gathering> gathering;
  Coordinator job;                         ///< What it does next.
  StepFailures failures;                   ///< Whom it lost while they ran its present step.
  std::vector<NodeLink> links;             ///< By place.
  Configuration configuration;             ///< What nodes were told last.
  std::set<DeviceSlot> devices;            ///< All that ever had a place: each keeps what it kept.
  std::size_t changes = 0;                 ///< Of the layout, as `debug.layouts` lists them.
  std::optional<HandLayout> asked_layout;  ///< From the next step on.
  PlannedBatchPtr newest_batch;            ///< Of those with samples.
  Refusals refusals;
  Saves saves;
  Stopping stopping;             ///< Where the job stops.
  bool is_announced = false;     ///< That it goes on.
  bool is_opening_told = false;  ///< That it waits for nodes which open their data.
  LayoutChange change;
  TemplateSetPtr templates;  ///< For losses and joins; null: none were made yet.
  scheduler::JoinTimes joins;
  Regrouping regrouping;  ///< Where the job regroups.
  std::optional<WarmingUp> warming;
  std::vector<observe::RunEvent> replay;  ///< Of a regrouping whose first step still runs.
  std::string replayed_change;            ///< `the loss of node 2`: the same one.
  std::optional<Time> began;              ///< To train.
  double step_ms_before = 0;              ///< Of the last finished step; 0: there is none.
  double samples_per_s_before = 0;        ///< The same.
  double last_loss = 0;                   ///< The same.
  ActorHandles actors;
  Time last_finish;
  std::deque<Collection> collections;
  std::vector<Offers> offers;
  std::size_t offering_devices = 0;
  Time asked_to_offer;  ///< When devices were asked for the tensors of this collection.
  /// The generation whose collection failed: what the recorder answers to it is no success.
  EpochNumber uncollected = 0;
  std::vector<LostHolder> lost_while_collected;
  std::optional<WaitingForNodes> waiting;  ///< Until a layout comes up.
  JobEnd how;
  Time deadline;  ///< Of joining, of applying, or of ending.
  Pace pace;      ///< Of its own signs of life.
  StallWatch stalls;
  SlowNodes slow_nodes;
  ForNextHead for_next_head;
  std::int32_t signals = 0;
  std::set<std::string> turned_away;  ///< Processes that wait for another head, and ask again.
  bool recorded = false;              ///< The recorder has written everything that was sent to it.

  static inline const char* name = "supervisor";
};

/// Steps of a job that have changed parameters.
inline std::int64_t updates_in(const JobProgress& progress) {
  return progress.step - progress.skipped.count;
}

inline Time now(SupervisorSelf self) { return self->clock().now(); }

/// Sends to a node that is there.
void send_to_node(SupervisorSelf self, NodeId node, auto&&... values) {
  auto& state = self->state;
  if (state.job.members.is_there(node))
    self->send(caf::actor_cast<NodeActor>(state.links[node.index()].handle),
               std::forward<decltype(values)>(values)...);
}

/// Sends to all nodes that are there.
void send_to_nodes(SupervisorSelf self, const auto&... values) {
  for (std::size_t i = 0; i < self->state.job.members.size(); ++i)
    send_to_node(self, NodeId{i}, values...);
}

}  // namespace troupe::actors
