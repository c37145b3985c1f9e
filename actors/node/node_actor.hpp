// A node process as the supervisor sees it: joins, starts its devices, passes messages on, ends in
// order.

#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "actors/link/heartbeat.hpp"
#include "actors/link/protocol.hpp"
#include "actors/node/call_watch.hpp"
#include "actors/node/copy_watch.hpp"
#include "actors/node/executor_actor.hpp"
#include "actors/node/read_watch.hpp"
#include "actors/node/wait_watch.hpp"
#include "actors/node/work_watch.hpp"

namespace troupe::actors {

/// How a node comes into a job and what becomes of it.
struct NodeStart {
  NodeHello hello;
  std::string joins;  ///< Where it joins, for messages: `HOST:PORT`.
  /// Fills the node's resources and introduces it. Called once, on a thread of its own: it may take
  /// long, and the node listens meanwhile. A process whose job ends does not wait for it.
  std::function<Result<NodeReady>(const NodeWelcome&)> open;
  /// Called once, from the actor, when the node has nothing more to do.
  std::function<void(JobEnd)> on_end;
  /// Looks once where the head of the job should be, on a thread of its own; null: nobody is there.
  /// Empty: a node that loses its head ends.
  std::function<caf::strong_actor_ptr()> find_head = {};
  /// The head was lost and the node waits for another one. `speaks_for_all`: of all nodes, this one
  /// should say so where they share a terminal.
  std::function<void(const std::string& text, bool speaks_for_all)> tell_of_loss = {};
  /// Starts a head here that saves what all nodes hold and ends the job, because no other one came.
  /// Empty: nothing is saved then.
  std::function<void()> save_as_head = {};
  /// The node has a place in the job of this head: at its welcome, and again under another one.
  std::function<void(const SupervisorActor&, NodeId)> on_head = {};
  /// The head lets the node leave, whose process a signal asked to end: `on_end` comes once its
  /// state lies elsewhere. May be called more than once.
  std::function<void()> on_drain = {};
};

/// A head that was lost, while another one is looked for.
struct LostHead {
  Time until;
  std::string why;
  bool is_gone = false;    ///< Its connection broke.
  bool is_asleep = false;  ///< Its process is there and says nothing: no other one is looked for.
  std::shared_ptr<std::atomic<bool>> called_off = std::make_shared<std::atomic<bool>>(false);
  caf::strong_actor_ptr found;  ///< To be asked as soon as no decided step is under way.
  Pace says;                    ///< To that one: that this node comes.
  bool saves = false;           ///< Its time is over: a head that only saves is started.
  caf::strong_actor_ptr asked;  ///< It was found, and has not answered yet.
  bool is_untold = false;       ///< A signal came of which no head has heard.
};

/// The way to a peer that this node has connected to.
struct PeerWay {
  ByteString address;                 ///< Where: a place may be taken by another process.
  std::optional<std::string> broken;  ///< How, once it is: it is not made again.
  bool was_there = true;              ///< Before that: else it never came up.
};

struct NodeState {
  NodeResources* resources = nullptr;  ///< Not to be read before `is_open`, but for `node`.
  SupervisorActor supervisor;
  NodeStart start;
  std::optional<NodeWelcome> welcome;  ///< Once it has joined.
  bool is_open = false;
  SchedulerActor scheduler;  ///< Known from the first order on.
  LoaderActor loader;
  std::map<std::int32_t, ExecutorActor> executors;  ///< By the device's number on this node.
  WorkOfDevices work;                               ///< What they are in the middle of.
  std::map<NodeId, PeerWay> connected;
  double connect_ms = 0;                    ///< Connecting to those new in the layout took.
  std::set<std::int32_t> fetched, applied;  ///< Devices that have done their part of an apply.
  std::map<std::int64_t, std::size_t> finished_devices;  ///< Per step, until all have finished.
  data::Epochs epochs;                                   ///< Of the data; as the scheduler says.
  Configuration configuration;
  ParallelPlan plan;              ///< Of the layout whose state it has.
  std::vector<Standby> arriving;  ///< Of the plan's: no step was decided since they were added.
  NodeReady ready;                ///< As it introduced itself.
  JobProgress progress;           ///< After the last step that all its devices finished.
  std::deque<engine::StepVerdict> verdicts;  ///< The newest ones, ascending.
  std::optional<LostHead> lost_head;
  std::vector<NodeHolding::Wish> leaves;  ///< One where it is to leave the job.
  Pace pace;                              ///< Of its own signs of life.
  Silence silence;                        ///< The supervisor's.
  ReadWatch reads;                        ///< Of the data, once they are open.
  CallWatch calls;                        ///< Of a format's function.
  WorkWatch long_work;                    ///< Of its devices.
  WaitWatch long_waits;                   ///< The same.
  CopyWatch copies;                       ///< Until all state of the newest layout has come.
  std::optional<JobEnd> own_fault;        ///< It could not open its data; it ends with this.

  static inline const char* name = "node";
};

/// Joins the supervisor's job at once. `resources` outlive the actor; `start.open` fills them,
/// their `node` apart.
NodeActor::behavior_type node(NodeActor::stateful_pointer<NodeState> self, NodeResources* resources,
                              SupervisorActor supervisor, NodeStart start);

}  // namespace troupe::actors
