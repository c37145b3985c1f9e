// Actors that take note of what they are told and do nothing else.

#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/head/recorder_actor.hpp"
#include "actors/link/protocol.hpp"
#include "actors/node/keeper_actor.hpp"

namespace troupe::actors {

/// What a fake node was told, each kind in order.
struct NodeSeen {
  std::vector<Configuration> configurations;
  std::vector<EpochNumber> settled;
  std::vector<IterationPlan> plans;
  std::vector<engine::Decision> decisions;
  std::vector<engine::StepNote> notes;  ///< That came with them.
  std::vector<engine::BatchOrder> orders;
  std::vector<Collection> collections;
  std::vector<SaveOrder> saves;
  std::vector<std::string> stops;
  std::vector<std::int32_t> exit_codes;  ///< That came with them.
  std::vector<Error> refusals;           ///< After the welcome.
  std::vector<std::string> restarts;
  std::vector<std::string> leaves;           ///< Why it is to leave the job; empty: it stays.
  int alive = 0;                             ///< Signs of life from the supervisor.
  bool deaf = false;                         ///< Does not end when it is told to.
  std::vector<engine::BatchReport> reports;  ///< From a loader.
  std::vector<Error> failures;               ///< From a loader or an executor.
};

/// Ends when it is told to stop, as a real node does, unless it is deaf.
NodeActor::behavior_type fake_node(NodeActor::pointer self, NodeSeen* seen);

/// What became of a fake node's wish to join.
struct JoinAnswer {
  std::optional<NodeId> place;
  Error why;  ///< Of a refusal.
};

/// A fake node that asks for a place; what it is told after that goes to `seen[place]`.
NodeActor::behavior_type joining_node(NodeActor::pointer self, const SupervisorActor& supervisor,
                                      NodeHello hello, std::vector<NodeSeen>* seen,
                                      JoinAnswer* answer);

/// What a fake supervisor was told, and what it says to nodes that want to join.
struct SupervisorSeen {
  std::map<std::int64_t, LearnedCosts> learned;  ///< By save.
  std::vector<PlannedBatchPtr> batches;
  std::vector<EpochNumber> unplanned;  ///< Of which layouts a batch has no plan.
  std::vector<RefusedBatchPtr> refused;
  std::vector<TemplateSetPtr> templates;
  std::vector<Error> failures;
  NodeWelcome welcome;
  std::optional<Error> refusal;                ///< Instead of the welcome.
  bool sends_anew = false;                     ///< For that reason.
  std::atomic<bool> holds = false;             ///< Answers nobody for now.
  std::function<void(const Error&)> on_fault;  ///< A node cannot go on.
  std::atomic<int> hellos = 0;
  std::atomic<int> readies = 0;
  std::atomic<int> fetched = 0;
  std::atomic<double> connect_ms = 0;  ///< As the last one said that has fetched.
  std::atomic<int> applied = 0;
  std::atomic<int> prepared = 0;                 ///< Words of devices that they are.
  std::atomic<int> finished = 0;                 ///< Reports of devices on steps.
  std::atomic<int> offers = 0;                   ///< Of devices.
  std::atomic<std::size_t> offered_tensors = 0;  ///< In all of these.
  std::atomic<int> alive = 0;
  std::atomic<std::int32_t> silent_peer = -1;   ///< Of whom nothing comes, as nodes said last.
  std::atomic<std::size_t> unmade = 0;          ///< Of the next, those that could not be made.
  std::atomic<std::size_t> misses = 0;          ///< So many of these:
  std::vector<std::pair<NodeId, NodeId>> ways;  ///< Who misses whom. Not read while more may come.
  std::vector<EpochNumber> missed_in;           ///< In which layout. The same.

  /// The last one. REQUIRES: `hellos` says that there is one, and no other comes.
  NodeHello hello() const { return hello_; }
  NodeHello hello_;
};

SupervisorActor::behavior_type fake_supervisor(SupervisorActor::pointer, SupervisorSeen* seen);

}  // namespace troupe::actors
