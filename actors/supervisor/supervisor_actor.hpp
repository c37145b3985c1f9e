// Keeps a job alive: joins nodes, brings up the layout, decides every step, ends the job.

#pragma once

#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "actors/head/recorder_actor.hpp"
#include "actors/link/heartbeat.hpp"
#include "actors/link/protocol.hpp"
#include "actors/node/stall_watch.hpp"
#include "actors/supervisor/gathering.hpp"
#include "actors/supervisor/layout_change.hpp"
#include "actors/supervisor/slow_nodes.hpp"
#include "engine/iteration/skipped_steps.hpp"
#include "engine/iteration/step_ledger.hpp"
#include "engine/setup/job_setup.hpp"
#include "engine/setup/resume.hpp"
#include "scheduler/recovery/layout_choice.hpp"
#include "scheduler/recovery/pipeline_templates.hpp"
#include "scheduler/state/state_moves.hpp"

namespace troupe::actors {

/// What the head process gives its supervisor. Outlives it.
struct HeadResources {
  engine::JobSetup setup;
  ParallelPlan plan;
  std::vector<ParallelPlan> later;  ///< Of `debug.layouts`, in order.
  std::string resolved_job;
  std::string build;        ///< Version and commit that nodes must have too.
  std::string run_id = {};  ///< Of the run, kept over its heads.
  /// Drawn from the data, for layouts without nodes that do not come. Empty: all have to.
  std::vector<SampleShape> samples = {};
  std::int32_t tries = 0;  ///< So often the job has begun again from where it goes on now.
  engine::DataIdentity data;
  std::shared_ptr<engine::RunFolder> folder;
  observe::Console* console = nullptr;
  observe::Logger logger;
  std::unique_ptr<transport::Transport> transport;
  /// Where a job goes on from; no folder: it begins.
  engine::ResumePoint resume = {};
  std::string listen;  ///< Host and port where nodes of other machines join; empty: any free port.
  std::string who;     ///< `process 71 on host`: of the head.
  std::optional<GatherWish> gather;  ///< None: no node can be waiting.
  /// Called once with how the job ended.
  std::function<void(JobEnd)> on_end;
};

/// The actors beside a supervisor, and what spawns them. Given from outside, so that a test can put
/// others in their place. `total_steps`: 0 where only the tokens decide.
struct Colleagues {
  SchedulerActor scheduler;
  RecorderActor recorder;
  KeeperActor keeper;
};
using SpawnColleagues =
    std::function<Colleagues(caf::actor_system&, const SupervisorActor&, std::int64_t total_steps)>;

/// A node as the supervisor knows it.
struct NodeEntry {
  enum class Phase : std::uint8_t { missing, joined, ready, fetched, applied, gone };
  Phase phase = Phase::missing;
  std::string host;
  std::int32_t pid = 0;
  NodeReady ready;
  caf::strong_actor_ptr handle;  ///< The node's actor, from `joined` on.
  Silence silence;
  bool silent = false;    ///< Lost by its silence: its process may still be there.
  std::string how_ended;  ///< "was killed by signal 9", where more is known than its loss.
  Time since;             ///< Of its welcome.
};

/// A step that was sent to the devices and is not finished.
struct RunningStep {
  PlannedBatchPtr batch;
  engine::StepLedger ledger;
  std::optional<engine::StepOutcome> outcome;
  std::vector<engine::DeviceReport> reports;
  TokenCount tokens_before = 0;
  double wait_ms = 0;              ///< Devices were idle for so long before it was sent.
  std::set<DeviceId> waiting_for;  ///< Devices that have not reported yet, PREPARED or their end.
  engine::StepNote note = {};      ///< Once there is an outcome.
  Status counted = Done{};         ///< Whether a job may go on after it.
};

/// A node that is to leave as soon as a step has ended.
struct Leaving {
  std::string why;  ///< `stopped by SIGTERM`.
  Time since;
  bool by_signal = false;  ///< Its process ends in any case.
};

/// A checkpoint on its way.
struct Save {
  std::int64_t number = 0;
  JobProgress progress;
  std::filesystem::path partial;  ///< Where its files are written.
  std::map<DeviceSlot, std::vector<ShardKey>> writers;
  std::map<DeviceSlot, SaveReport> shares;  ///< Of writers that are done.
  bool is_learned = false;                  ///< The scheduler has said what it learned.
  bool is_recorded = false;                 ///< Lines of its steps are on disk, or take too long.
  bool is_written = false;                  ///< All are; the keeper has it.
  bool is_called_late = false;              ///< That others wait for it was said.
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
  Time last_begun;
  double written_ms = 0;  ///< What the newest one took; the next step's metrics say so.
};

/// A job that is to stop once its state is saved.
struct Stopping {
  std::string what;            ///< `stopped by SIGTERM during step 12`.
  std::int32_t exit_code = 0;  ///< Where nothing is saved.
  Time until;                  ///< All must have ended.
  Time save_until;
  std::int64_t failed_step = 0;  ///< Whose state was tried to save.
};

struct SupervisorState {
  using Time = actors::Time;  ///< Of the actor system's clock, which tests drive.
  enum class Phase : std::uint8_t {
    gathering,
    joining,
    applying,
    training,
    collecting,
    ending,
    ended
  };

  HeadResources* resources = nullptr;
  SpawnColleagues spawn;
  std::optional<Gathering> gathering;
  std::optional<engine::TrainingLength> length;
  Phase phase = Phase::joining;
  std::vector<NodeEntry> nodes;
  Configuration configuration;
  StatePlacement placed;         ///< Where the model's state lies; empty before the first layout.
  std::set<DeviceSlot> devices;  ///< All that ever had a place: each keeps what it kept.
  std::size_t changes = 0;       ///< Of the layout, as `debug.layouts` lists them.
  std::optional<HandLayout> asked_layout;  ///< From the next step on.
  PlannedBatchPtr newest_batch;            ///< Of those with samples.
  JobProgress progress;  ///< Of finished steps, but for bad samples and skipped steps.
  Saves saves;
  std::optional<Stopping> stopping;
  bool is_announced = false;  ///< That it goes on.
  std::int64_t planned_steps = 0;
  LayoutChange change;
  TemplateSetPtr templates =
      std::make_shared<const scheduler::TemplateSet>();  ///< For losses and joins; none at first.
  std::set<NodeId> idle_since_takeover;  ///< Of use, perhaps, once there are templates.
  std::optional<Regrouping> regrouping;
  std::optional<WarmingUp> warming;
  std::set<NodeId> newcomers;         ///< Ready, and not yet part of a layout.
  std::map<NodeId, Leaving> leaving;  ///< Before the next step.
  std::map<NodeId, std::string>
      signals_of_nodes;  ///< Told to end within the last half second, and by what.
  std::optional<observe::RunEvent> replay;  ///< Of a regrouping whose first step still runs.
  std::string replayed_change;              ///< `the loss of node 2`: the same one.
  std::optional<Time> began;                ///< To train.
  std::int64_t node_changes = 0;            ///< Losses, joins and leaves since then.
  double quiet_ms = scheduler::expected_quiet_ms(0, 0);  ///< Until the next of them, expected.
  double step_ms_before = 0;  ///< Of the last finished step; 0: there is none.
  double last_loss = 0;       ///< The same.
  std::map<NodeId, std::set<NodeId>>
      missed;  ///< Whose connections broke in this layout, and who says so.
  Colleagues colleagues;
  std::deque<RunningStep> steps;  ///< At most two: one runs, one waits in the devices' queues.
  bool planning = false;          ///< A plan was asked for and has not come.
  bool last_planned = false;
  TokenCount planned_tokens = 0;
  Time last_finish;
  std::optional<engine::SkippedSteps> skipped;
  std::map<std::string, std::int64_t> bad_ids;  ///< And the batch in which each was found.
  std::vector<BadSampleNote> untold_bad;        ///< Of decided steps that no device ran.
  std::deque<Collection> collections;
  std::vector<Offers> offers;
  std::size_t offering_devices = 0;
  /// A node was lost after all its tensors of the last collection had been offered: they may have
  /// come, and only the recorder knows. Counts if they have not.
  std::optional<Error> lost_while_collected;
  JobEnd how;
  Time deadline;  ///< Of joining, of applying, or of ending.
  Pace pace;      ///< Of its own signs of life.
  StallWatch stalls;
  SlowNodes slow_nodes;
  std::optional<Time> few_since;  ///< Fewer nodes take part than `cluster.min_nodes`.
  std::int32_t signals = 0;
  std::set<std::string> turned_away;  ///< Processes that wait for another head, and ask again.
  bool recorded = false;              ///< The recorder has written everything that was sent to it.

  static inline const char* name = "supervisor";
};

SupervisorActor::behavior_type supervisor(SupervisorActor::stateful_pointer<SupervisorState> self,
                                          HeadResources* resources, const SpawnColleagues& spawn);

}  // namespace troupe::actors
