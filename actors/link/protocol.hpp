// Every protocol of the engine on one page: who may send what to whom, and what comes back.
//
//   head process:  supervisor, scheduler, recorder, keeper    node process:  node, loader,
//   executors
//
// Control messages only; tensors travel over the transport. Epoch numbers make stale messages
// recognisable: every receiver drops what belongs to an older configuration. A `reacts_to` has no
// reply; its sender hears of trouble through `failed_atom`. Remote requests carry timeouts.
// Size: every message, to be read as one.

#pragma once

#include <caf/all.hpp>
#include <string>
#include <vector>

#include "actors/link/messages.hpp"
#include "actors/link/shared_values.hpp"
#include "engine/iteration/batch_planner.hpp"
#include "engine/iteration/reports.hpp"

CAF_BEGIN_TYPE_ID_BLOCK(troupe, caf::first_custom_type_id)

CAF_ADD_TYPE_ID(troupe, (troupe::Error))
CAF_ADD_TYPE_ID(troupe, (troupe::NodeId))
CAF_ADD_TYPE_ID(troupe, (troupe::DeviceId))
CAF_ADD_TYPE_ID(troupe, (troupe::IterationPlan))
CAF_ADD_TYPE_ID(troupe, (troupe::engine::Prepared))
CAF_ADD_TYPE_ID(troupe, (troupe::engine::Decision))
CAF_ADD_TYPE_ID(troupe, (troupe::engine::DeviceReport))
CAF_ADD_TYPE_ID(troupe, (troupe::actors::NodeHello))
CAF_ADD_TYPE_ID(troupe, (troupe::actors::NodeWelcome))
CAF_ADD_TYPE_ID(troupe, (troupe::actors::NodeReady))
CAF_ADD_TYPE_ID(troupe, (troupe::actors::Configuration))
CAF_ADD_TYPE_ID(troupe, (troupe::engine::BatchOrder))
CAF_ADD_TYPE_ID(troupe, (troupe::engine::BatchReport))
CAF_ADD_TYPE_ID(troupe, (troupe::actors::Collection))
CAF_ADD_TYPE_ID(troupe, (troupe::actors::Offers))
CAF_ADD_TYPE_ID(troupe, (troupe::actors::JobEnd))
CAF_ADD_TYPE_ID(troupe, (troupe::actors::SaveOrder))
CAF_ADD_TYPE_ID(troupe, (troupe::actors::SaveReport))
CAF_ADD_TYPE_ID(troupe, (troupe::actors::ControlRequest))
CAF_ADD_TYPE_ID(troupe, (troupe::engine::StepVerdict))
CAF_ADD_TYPE_ID(troupe, (troupe::engine::FailedWork))
CAF_ADD_TYPE_ID(troupe, (troupe::engine::LongWorks))
CAF_ADD_TYPE_ID(troupe, (troupe::engine::LongWaits))

CAF_ADD_ATOM(troupe, troupe::actors, join_atom, "join")
CAF_ADD_ATOM(troupe, troupe::actors, apply_atom, "apply")
CAF_ADD_ATOM(troupe, troupe::actors, applied_atom, "applied")
CAF_ADD_ATOM(troupe, troupe::actors, begin_atom, "begin")
CAF_ADD_ATOM(troupe, troupe::actors, next_atom, "next")
CAF_ADD_ATOM(troupe, troupe::actors, wake_atom, "wake")
CAF_ADD_ATOM(troupe, troupe::actors, loaded_atom, "loaded")
CAF_ADD_ATOM(troupe, troupe::actors, collect_atom, "collect")
CAF_ADD_ATOM(troupe, troupe::actors, failed_atom, "failed")
CAF_ADD_ATOM(troupe, troupe::actors, stop_atom, "stop")
CAF_ADD_ATOM(troupe, troupe::actors, exited_atom, "exited")
CAF_ADD_ATOM(troupe, troupe::actors, lost_atom, "lost")
CAF_ADD_ATOM(troupe, troupe::actors, tick_atom, "tick")
CAF_ADD_ATOM(troupe, troupe::actors, finish_atom, "finish")
CAF_ADD_ATOM(troupe, troupe::actors, alive_atom, "alive")
CAF_ADD_ATOM(troupe, troupe::actors, fetched_atom, "fetched")
CAF_ADD_ATOM(troupe, troupe::actors, settle_atom, "settle")
CAF_ADD_ATOM(troupe, troupe::actors, save_atom, "save")
CAF_ADD_ATOM(troupe, troupe::actors, control_atom, "control")
CAF_ADD_ATOM(troupe, troupe::actors, leave_atom, "leave")
CAF_ADD_ATOM(troupe, troupe::actors, layout_atom, "layout")
CAF_ADD_ATOM(troupe, troupe::actors, speed_atom, "speed")
CAF_ADD_ATOM(troupe, troupe::actors, unreached_atom, "unreached")

CAF_END_TYPE_ID_BLOCK(troupe)

namespace troupe::actors {

/// Makes the messages above known to an actor system that is about to start. A source of its own
/// does it, because it brings the code to copy, compare and write each of them.
void add_messages(caf::actor_system_config& config);

/// Keeps the job alive: joins nodes, applies layouts, decides steps, ends the job.
using SupervisorActor = caf::typed_actor<
    // A node wants to join, at any time. From the welcome on it hears of the job's end, and shows
    // that it lives.
    // Errors (a whole `Error`, see refusal.hpp): it is full or ends, the id is taken, the build.
    // Or the word to begin anew (`sent_anew_in`): what it holds comes too late.
    caf::replies_to<join_atom, NodeHello>::with<NodeWelcome>,
    // A joined node has opened data, devices and transport.
    caf::reacts_to<NodeReady>,
    // A node has this configuration's state beside the old one's; ms that connecting took before.
    caf::reacts_to<fetched_atom, NodeId, EpochNumber, double>,
    // A node has brought up its part of this configuration.
    caf::reacts_to<applied_atom, NodeId, EpochNumber>,
    // A device has all reduced gradients of a step.
    caf::reacts_to<engine::Prepared>,
    // A device has finished a step.
    caf::reacts_to<engine::DeviceReport>,
    // A node offers the tensors of a collection.
    caf::reacts_to<Offers>,
    // A node cannot go on.
    caf::reacts_to<failed_atom, NodeId, Error>,
    // A node cannot go on in this configuration; of an older one it means nothing any more.
    caf::reacts_to<failed_atom, NodeId, EpochNumber, Error>,
    // A stage threw at a node: of an older configuration, the same.
    caf::reacts_to<NodeId, engine::FailedWork>,
    // What a node's devices have been at for long; none: nothing any more.
    caf::reacts_to<NodeId, engine::LongWorks>,
    // For what a node's devices have long waited; none: for nothing any more.
    caf::reacts_to<NodeId, engine::LongWaits>,
    // The scheduler has planned the next batch (head only).
    caf::reacts_to<PlannedBatchPtr>,
    // The scheduler has no plan for the next batch on this layout (head only).
    caf::reacts_to<RefusedBatchPtr>,
    // The scheduler cannot plan the next batch of this configuration on any layout; of an older one
    // that means nothing any more (head only).
    caf::reacts_to<next_atom, EpochNumber, Error>,
    // The scheduler has seen how pipelines of other sizes would be cut (head only).
    caf::reacts_to<TemplateSetPtr>,
    // The scheduler or the recorder cannot go on (head only).
    caf::reacts_to<failed_atom, Error>,
    // Peers that missed each other in this configuration have had time to be explained (from
    // itself).
    caf::reacts_to<failed_atom, EpochNumber, Error>,
    // A local node process has ended: its pid, how, and by which signal; 0: by none (head only).
    caf::reacts_to<exited_atom, std::int32_t, std::string, std::int32_t>,
    // A signal asks to end the job (head only). A second one ends it at once.
    caf::reacts_to<stop_atom, std::int32_t>,
    // The job's owner asks or orders something (`troupe ctl`): a line of JSON for the status, else
    // what will be done, a sentence. Errors (two texts: why, and the fix): it cannot be done; of a
    // layout file also what is wrong in it.
    caf::replies_to<control_atom, ControlRequest>::with<std::string>,
    // Nodes whose processes were told to end have all said so by now (from itself).
    caf::reacts_to<leave_atom>,
    // Somebody wants a checkpoint now (head only).
    caf::reacts_to<save_atom>,
    // A device has written its share of a checkpoint, or could not.
    caf::reacts_to<SaveReport>,
    // The scheduler has learned this when this save was ordered (head only).
    caf::reacts_to<save_atom, std::int64_t, LearnedCostsPtr>,
    // The keeper has completed a checkpoint, or could not (head only).
    caf::reacts_to<KeptCheckpointPtr>,
    // A node's connection was lost a moment ago (from itself).
    caf::reacts_to<lost_atom, NodeId, std::int32_t>,
    // A node has lost its connection to another one; how, in its transport's words. The head is one
    // more node behind all places; it misses a node where there never was a way, as that node says.
    caf::reacts_to<lost_atom, NodeId, NodeId, EpochNumber, std::string>,
    // The same of one that could not be made: the next configuration tries anew.
    caf::reacts_to<unreached_atom, NodeId, NodeId, EpochNumber, std::string>,
    // A node lives; every `cluster.heartbeat_interval_s`.
    caf::reacts_to<alive_atom, NodeId>,
    // Time passes: deadlines, signs of life, stalls (from itself).
    caf::reacts_to<tick_atom>>;

/// Plans iterations: asks nodes to measure a batch, makes the plan from the lengths, asks nodes to
/// decode what it has them work on, and puts right what was found different. One batch at a time,
/// in order; decoding runs `data.prefetch` batches ahead, measuring one more.
using SchedulerActor = caf::typed_actor<
    // Start planning for a configuration, from this batch on; handles of the nodes in order of
    // their ids. What was planned beyond for an older one is planned anew.
    caf::reacts_to<begin_atom, Configuration, std::vector<caf::strong_actor_ptr>, std::int64_t>,
    // The next configuration is one that was asked for: how pipelines of other sizes are cut is
    // worked out anew for it.
    caf::reacts_to<layout_atom>,
    // Plan the next batch; the answer is a PlannedBatchPtr to the supervisor, or a RefusedBatchPtr.
    caf::reacts_to<next_atom>,
    // A node has decoded its share of a batch.
    caf::reacts_to<engine::BatchReport>,
    // A node takes so many times as long for the same work as plans take it for, 1: once; batches
    // that are not being decoded yet are dealt by that.
    caf::reacts_to<speed_atom, NodeId, double>,
    // What a step took, to be held against its plan; sent where predictions are to be corrected.
    caf::reacts_to<PlannedBatchPtr, StepRecordPtr>,
    // Say what was learned so far, for this save; a LearnedCostsPtr goes to the supervisor.
    caf::reacts_to<save_atom, std::int64_t>>;

/// Writes the run folder: metrics, samples, bad samples, plans, traces, the log. Detached.
using RecorderActor = caf::typed_actor<
    // A layout was brought up: plan.json, names in the trace.
    caf::reacts_to<begin_atom, Configuration>,
    // A planned batch: its samples and bad samples.
    caf::reacts_to<PlannedBatchPtr>,
    // A finished or skipped step.
    caf::reacts_to<StepRecordPtr>,
    // Something that happened to the job: a line of events.jsonl.
    caf::reacts_to<RunEventPtr>,
    // Receive these tensors over the head's transport and write them; then reply.
    caf::replies_to<collect_atom, Collection, EpochNumber, OffersPtr>::with<finish_atom>,
    // Bring all lines so far to disk where it takes them, then reply: a checkpoint of a step comes
    // after its lines.
    caf::replies_to<save_atom>::with<save_atom>,
    // Take the progress bar down, then reply.
    caf::replies_to<finish_atom>::with<finish_atom>>;

/// Completes checkpoints: the manifest, the name, what older ones go. Detached, and apart from the
/// recorder: the folder of checkpoints may hang while the run's own does not.
using KeeperActor = caf::typed_actor<
    // Complete this checkpoint; a KeptCheckpointPtr goes to the supervisor.
    caf::reacts_to<WrittenCheckpointPtr>,
    // Remove what a checkpoint that came to nothing left in this folder.
    caf::reacts_to<stop_atom, std::string>>;

/// One node process as the supervisor sees it.
using NodeActor = caf::typed_actor<
    // Fetch what this configuration wants here; `fetched_atom` or `failed_atom` goes to the
    // supervisor. A step that is not decided yet is given up.
    caf::reacts_to<apply_atom, Configuration>,
    // Every node has fetched: let go of the old configuration and bring up this one; `applied_atom`
    // or `failed_atom` goes to the supervisor.
    caf::reacts_to<settle_atom, EpochNumber>,
    // Run this iteration after those before it: the node's slice of the plan.
    caf::reacts_to<IterationPlan>,
    // The word on a step.
    caf::reacts_to<engine::StepVerdict>,
    // Decode this share of a batch; a BatchReport goes to the sender.
    caf::reacts_to<engine::BatchOrder>,
    // Offer these tensors to the supervisor and send them to the head's transport.
    caf::reacts_to<collect_atom, Collection>,
    // Write this node's share of a checkpoint; a SaveReport per device goes to the supervisor.
    caf::reacts_to<SaveOrder>,
    // End: no more messages will come. The text says why, empty after a finished job; then the exit
    // code, 0 also for one that has left a job that goes on.
    caf::reacts_to<stop_atom, std::string, std::int32_t>,
    // It was welcomed, but has not what the job needs: end with this reason, as with one of its
    // own.
    caf::reacts_to<stop_atom, Error>,
    // End, and the job begins again from a checkpoint: look for it anew.
    caf::reacts_to<begin_atom, std::string>,
    // A signal asks this process to end: the supervisor hears of it and ends the job.
    caf::reacts_to<stop_atom, std::int32_t>,
    // It leaves the job before the next step, and why; it tells a head that comes before that.
    // Where its process is to end, it may take its time for that. Empty: it stays after all.
    caf::reacts_to<leave_atom, std::string>,
    // The supervisor lives; every `cluster.heartbeat_interval_s`.
    caf::reacts_to<alive_atom>,
    // The connection to another node was lost, whether it had been up, and how (from its
    // transport).
    caf::reacts_to<lost_atom, NodeId, bool, std::string>,
    // A head was found, in place of one that was lost (from itself).
    caf::reacts_to<join_atom, caf::strong_actor_ptr>,
    // Time passes (from itself).
    caf::reacts_to<tick_atom>,
    // It has opened what it works with (from itself).
    caf::reacts_to<NodeReady>,
    // From its own executors and loader; before it is ready, from who opens its data.
    caf::reacts_to<engine::Prepared>, caf::reacts_to<engine::DeviceReport>,
    caf::reacts_to<fetched_atom, std::int32_t, EpochNumber>,
    caf::reacts_to<applied_atom, std::int32_t, EpochNumber>, caf::reacts_to<engine::BatchReport>,
    caf::reacts_to<Offers>, caf::reacts_to<SaveReport>, caf::reacts_to<failed_atom, Error>,
    caf::reacts_to<failed_atom, EpochNumber, Error>, caf::reacts_to<engine::FailedWork>>;

/// Decodes a node's share of batches on the loader's threads.
using LoaderActor = caf::typed_actor<
    // Start decoding; a BatchReport goes to the node.
    caf::reacts_to<engine::BatchOrder>,
    // The loader's threads have finished a batch that was ordered for this configuration.
    caf::reacts_to<loaded_atom, std::int64_t, EpochNumber>>;

/// One device: keeps its state, builds its stages and runs its action lists. Detached, one thread.
/// It calls itself by its number on the node, which no layout changes.
using ExecutorActor = caf::typed_actor<
    // Fetch the state that a configuration gives to this device; `fetched_atom` goes to the node.
    caf::reacts_to<apply_atom, Configuration>,
    // Build stages for it; `applied_atom` goes to the node.
    caf::reacts_to<settle_atom, EpochNumber>,
    // Queue an iteration.
    caf::reacts_to<IterationPlanPtr>,
    // The word on a step.
    caf::reacts_to<engine::Decision>,
    // Something that an action waits for may have arrived; the flag says that a wake is on its way.
    caf::reacts_to<wake_atom, WakeFlag>,
    // Offer tensors and send them.
    caf::reacts_to<collect_atom, Collection>,
    // Copy and write this device's share of a checkpoint; a SaveReport goes to the node.
    caf::reacts_to<SaveOrder>>;

}  // namespace troupe::actors
