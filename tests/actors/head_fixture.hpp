// A supervisor between fakes, for tests of what it tells whom.

#pragma once

#include "tests/torch_catch.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "actors/node/peers.hpp"
#include "actors/supervisor/supervisor_actor.hpp"
#include "engine/layout/choose_layout.hpp"
#include "tests/actors/fake_actors.hpp"
#include "tests/actors/fake_head_actors.hpp"
#include "tests/actors/test_system.hpp"
#include "tests/engine/measured_events.hpp"
#include "tests/engine/tiny_job.hpp"
#include "transport/inproc/hub.hpp"
#include "transport/registry.hpp"

namespace troupe::actors {

inline bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Cuts the model over all nodes, so that each has the only copy of something.
void one_pipeline(job::Job& job);

/// Each device has memory for its part of the layout, and for nothing beside it.
void no_room_beside(job::Job& job);

/// A supervisor between four fake nodes (one device each), a fake scheduler, recorder and keeper.
/// Two steps of six samples; learning rate 0.5 throughout; nodes have two seconds to join, two
/// to open their data, and may be silent for long.
class Head {
 public:
  explicit Head(std::int64_t steps = 2, const std::function<void(job::Job&)>& edit = {},
                engine::ResumePoint resume = {}, const std::function<void(Head&)>& arrange = {});

  ~Head();

  /// Sends one of the supervisor's messages and lets all act on it. `head_fixture.cpp` has the list
  /// of those that tests send; one that is not there ends at the linker.
  template <class... Values>
  void tell(Values&&... values) {
    send(std::decay_t<Values>(std::forward<Values>(values))...);
  }

  /// A node asks for a place: the id it got, or why it got none (and `refusal`).
  std::string join(const NodeHello& hello);
  /// Who wants a place of the head's own nodes is one of them.
  std::string join(const std::string& host, std::int32_t wanted = -1,
                   const std::string& build = "1.0 (abc)");

  /// A node that lost its head shows what it holds; it is introduced like others.
  std::string join_with(NodeHolding holding, const std::string& build = "1.0 (abc)",
                        const std::string& run_id = "5f0c", std::int64_t incarnation = 1);

  /// The answer to what the job's owner asks, or why there is none and the fix.
  std::string ask(const ControlRequest& request);

  /// Lets time pass while these nodes show that they live.
  void pass(std::chrono::milliseconds time, const std::vector<std::size_t>& living);

  void ready(std::size_t id, engine::DataIdentity data = {60, 7},
             std::vector<engine::PluginIdentity> plugins = {}, std::int64_t memory = 0);

  /// Those in the places of the head's own nodes are its processes.
  void join_all();

  /// All nodes fetch a layout's state, then turn over to it.
  void bring_up(EpochNumber epoch_number);

  void start_training();

  /// The scheduler's next plan, made in `plan_ms`, for the layout that it was told of last.
  void plan(std::int64_t batch, double plan_ms = 0);

  void prepared(std::size_t device, std::int64_t step, double squared, double loss = 0,
                EpochNumber epoch_number = 1);

  void finished(std::size_t device, std::int64_t step, EpochNumber epoch_number = 1,
                std::uint64_t hash = 7);

  /// The same of a device each of whose stages took so long.
  void finished_in(std::size_t device, std::int64_t step, std::int64_t stage_ms);

  /// The process of this number is killed.
  void kill(std::int32_t pid);

  /// That of the node-th that joined.
  void lose(std::size_t node) { kill(static_cast<std::int32_t>(100 + node)); }

  /// These nodes' processes end, as they do when they were told to stop.
  void leave(const std::vector<std::size_t>& ids);

  void run_step(std::int64_t step, double loss = 1);

  TestSystem system;
  HeadResources resources;
  std::vector<NodeSeen> seen = std::vector<NodeSeen>(4);
  SchedulerSeen scheduler;
  RecorderSeen recorder;
  KeeperSeen keeper;
  std::vector<NodeActor> nodes = std::vector<NodeActor>(4);  ///< Who got each place.
  ActorHandles actors;
  SupervisorActor actor;
  std::optional<JobEnd> ended;
  TokenCount trained_tokens = 0;
  Error refusal;                ///< The last one.
  double profile_stage_ms = 0;  ///< What plans say of every stage; 0: nothing.

 private:
  template <class... Values>
  void send(Values... values);

  std::vector<std::unique_ptr<JoinAnswer>> answers_;  ///< Some come later.
  std::vector<NodeActor> askers_;                     ///< Who asked for a place, in order.
  std::vector<std::unique_ptr<transport::Transport>> transports_;
  engine::SampleStore store_;
};

}  // namespace troupe::actors
