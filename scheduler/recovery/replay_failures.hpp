// Hours of training on a cluster whose nodes come and go, played through in advance: what a trace
// of failures leaves of the throughput, with recovery from live replicas (Oobleck) or with restarts
// from checkpoints.
//
// Pure: no clock, no randomness; the same request gives the same result. Thread-safe. Iteration
// times are those of the templates, reconfiguration, batch distribution and copies those of the
// functions that a running job uses.
//
// What happens at an event:
// - Live, nodes lost: the unfinished iteration is lost; then the phases of `ChangeCosts`, and
//   copies as long as the busiest node sends or receives. Where a layer has lost its last holder,
//   the job restarts from its last checkpoint.
// - Live, nodes joined: the iteration ends first; then the same.
// - Restart, nodes lost: everything since the last checkpoint is lost; then detection, restart, and
//   loading of the whole state by every pipeline, each node its own layers, all at once. Nodes that
//   were idle are not missed.
// - A save: the nodes of one pipeline write their own layers, all at once.
// - Restart, nodes joined: only where they make an iteration faster: it ends, the state is saved,
//   and the job restarts.
// - Fewer nodes than (f + 1) x n0 (restart: n0): the job stops. A live job saves what its survivors
//   hold; it resumes by a restart from the last checkpoint, once enough nodes are there.
// - An event during a recovery begins it anew: what had been copied does not count. During a save:
//   that checkpoint is lost.

#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/vocabulary/result.hpp"
#include "scheduler/recovery/recovery_layouts.hpp"

namespace troupe::scheduler {

enum class RecoveryMode : std::uint8_t { live, restart };
std::string_view to_string(RecoveryMode mode);

/// Nodes that leave and come at one time. A node in both lists left and came back empty.
struct NodeEvent {
  double time_ms = 0;  ///< From the start; >= 0.
  RankList lost;
  RankList joined;

  friend bool operator==(const NodeEvent&, const NodeEvent&) = default;
};

/// What a change of the nodes takes a job that goes on live, phase by phase, as a run's
/// events.jsonl has it.
struct ChangeCosts {
  double detect_ms = 0;   ///< From a loss until everyone knows it.
  double decide_ms = 0;   ///< Until it is known what to do.
  double copy_ms = 0;     ///< Until nodes gave up what they had under way; the bytes come on top.
  double rebuild_ms = 0;  ///< Of stages, groups and connections.
  double first_step_ms = 0;    ///< Of the first step, beyond a usual one: nothing of it was ready.
  bool is_copy_whole = false;  ///< `copy_ms` is all that copying takes, whatever moves.
};

/// What recovery costs. Bandwidths are bytes per millisecond (1 GB/s = 1e6).
struct RecoveryCosts {
  ChangeCosts loss{5, 0, 0, 120, 0, false};
  ChangeCosts join{0, 0, 0, 120, 0, false};
  double turnover_ms = 50;          ///< Live: to a layout during which a newcomer's state comes.
  double restart_ms = 30'000;       ///< Processes, communicators, model; without loading.
  double link_bytes_per_ms = 0;     ///< A node's network, one direction; > 0.
  double storage_bytes_per_ms = 0;  ///< All checkpoint storage together; > 0.
  /// One node to or from that storage, serialization included; 0: as fast as its network.
  double node_storage_bytes_per_ms = 0;
  /// Iterations from one checkpoint to the next; 0: none is made. Training stands still meanwhile.
  std::int64_t checkpoint_iterations = 0;
};

struct ReplayRequest {
  RecoveryMode mode = RecoveryMode::live;
  RecoveryModel model;
  RecoveryCosts costs;
  RankList nodes;                 ///< At time 0; may be empty.
  std::vector<NodeEvent> events;  ///< Ascending times; at equal times in order.
  double duration_ms = 0;         ///< > 0; events from here on do not happen.
};

/// Where the time went; the fields add up to the duration.
struct TimeShares {
  double training_ms = 0;    ///< Of iterations that count, and of the one under way at the end.
  double lost_work_ms = 0;   ///< Iterations that were broken off or trained again.
  double checkpoint_ms = 0;  ///< Saves, also those that a loss made worthless.
  double detection_ms = 0;
  double reconfigure_ms = 0;  ///< New layouts, their first steps' share of it, or restart.
  double copy_ms = 0;         ///< Copies from live nodes, or loading.
  double stopped_ms = 0;      ///< Too few nodes, or one is waited for.

  double total_ms() const {
    return training_ms + lost_work_ms + checkpoint_ms + detection_ms + reconfigure_ms + copy_ms +
           stopped_ms;
  }
};

enum class EventOutcome : std::uint8_t {
  unaffected,    ///< Nobody at work left, and nobody who came was of use yet.
  reconfigured,  ///< Live: pipelines and copies.
  restarted,     ///< From a checkpoint.
  stopped,       ///< Too few nodes are left.
  waiting,       ///< Still too few nodes.
};
std::string_view to_string(EventOutcome outcome);

/// What one change took, phase by phase: what events.jsonl says of a run. Phases it did not have:
/// 0.
struct EventPhases {
  double detect_ms = 0;
  double waited_ms = 0;  ///< For a node on its way, before it went on.
  double decide_ms = 0;
  double copy_ms = 0;
  double rebuild_ms = 0;
  double replay_ms = 0;            ///< Of the first step.
  double warm_up_ms = 0;           ///< In which who joined took state over while others trained.
  std::int64_t warm_up_steps = 0;  ///< During which it came.
  std::int64_t warm_up_bytes = 0;
};

/// What one change of the nodes did. Costs are those of its recovery if nothing interrupts it.
struct EventRecord {
  /// When the job acted on it: a join waits for the end of an iteration, a loss for who is waited
  /// for.
  double time_ms = 0;
  EventOutcome outcome = EventOutcome::unaffected;
  std::int64_t nodes = 0;               ///< Alive afterwards.
  std::int64_t idle = 0;                ///< Of them without work.
  std::vector<std::int64_t> pipelines;  ///< Nodes of each; empty while stopped.
  double iteration_ms = 0;              ///< From then on.
  double lost_work_ms = 0;
  std::int64_t lost_iterations = 0;  ///< Completed ones that must be trained again.
  double recovery_ms = 0;            ///< Detection to the end of copying or loading.
  std::int64_t copied_bytes = 0;     ///< Over all nodes: copied, or loaded.
  bool lost = false;                 ///< Nodes were lost; else they joined.
  EventPhases phases;                ///< Of live recovery.
};

struct ReplayResult {
  std::int64_t iterations = 0;           ///< That count at the end.
  std::int64_t repeated_iterations = 0;  ///< Completed, lost and to be trained again.
  std::int64_t samples = 0;              ///< iterations x global batch: each sample once.
  double samples_per_s = 0;              ///< Over the whole duration.
  double idle_share = 0;  ///< Of node time alive: nodes without work, or job stopped or waiting.
  TimeShares time;
  std::vector<EventRecord> events;
};

/// Plays the events. Cost: one reconfiguration and copy plan per event.
///
/// Errors:
/// - invalid_argument: a time, cost or bandwidth that is negative or not finite (or zero where it
///   must not be); events out of order; a node lost that is not there, joined that is there; no
///   templates, or fewer layer sizes than they have layers; a batch that is no multiple of the
///   microbatch size; more than `kReplayIterationsMax` iterations.
/// - as `instantiate` where the templates themselves are refused.
Result<ReplayResult> replay_failures(const ReplayRequest& request);

/// The part of its errors that needs no replay.
Status check_replay(const ReplayRequest& request);
/// The same of what every replay has. `link_bytes_per_ms` is for whoever reads it.
Status check_replay(double duration_ms, const std::vector<NodeEvent>& events,
                    const RecoveryCosts& costs);

inline constexpr double kReplayIterationsMax = 1e8;
/// Of each copy plan: the searches of a running job would take a third of a second per event, and
/// lower the busiest sender's bytes by few percent.
inline constexpr std::int64_t kReplayCopySearchSteps = 1000;

}  // namespace troupe::scheduler
