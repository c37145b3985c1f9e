// The actor of one device: a thread that keeps the device's state from layout to layout, builds its
// stages and runs its action lists.

#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <queue>

#include "actors/link/protocol.hpp"
#include "engine/execution/device.hpp"
#include "engine/execution/executor.hpp"
#include "engine/execution/mask_store.hpp"
#include "engine/execution/nccl_rows.hpp"
#include "engine/execution/nccl_sums.hpp"
#include "engine/execution/sample_store.hpp"
#include "engine/execution/stage_program.hpp"
#include "engine/execution/work_in_hand.hpp"
#include "engine/setup/job_setup.hpp"
#include "engine/state/state_saver.hpp"
#include "engine/state/state_store.hpp"
#include "engine/state/state_transfer.hpp"
#include "runtime/observers/audience.hpp"
#include "transport/transport.hpp"

namespace troupe::actors {

/// What a node process shares among its actors. Outlives all of them.
struct NodeResources {
  engine::JobSetup setup;
  engine::LossListeners losses;  ///< Before the transport, whose thread calls them.
  std::unique_ptr<transport::Transport> transport;
  engine::SampleStore samples;
  engine::MaskStore masks;  ///< Of the iterations that its devices were sent.
  std::shared_ptr<const data::Dataset> dataset;
  NodeId node;
  bool is_heads_own = false;     ///< The head started this process, on its own machine.
  observers::Audience audience;  ///< Who looks at what its devices compute.
  /// Of the layout that trains now: samples that were ordered for an older one are not kept.
  std::atomic<EpochNumber> epoch_number = 0;
  /// Of the newest checkpoint that was ordered: devices in the middle of a step look at it.
  std::atomic<std::int64_t> save_number = 0;
  /// Of the newest layout that was ordered: devices in the middle of a step give it up.
  std::atomic<EpochNumber> wanted_epoch = 0;
};

struct ExecutorState {
  NodeResources* resources = nullptr;
  NodeActor node;
  DeviceSlot slot;
  std::shared_ptr<engine::WorkInHand> in_hand;  ///< For the node's actor.
  std::optional<engine::StateStore> store;
  std::optional<engine::StateSaver> saver;  ///< Of `store`.
  std::int64_t save_number = 0;             ///< Of the checkpoint that it heard of last.
  std::optional<SaveOrder> waiting_save;    ///< For parameters to come back, or a thread to end.
  std::unique_ptr<Configuration> next;      ///< Fetched or being fetched, not yet up.
  /// Of `next`; of the layout that is up, of what comes during its first step.
  std::optional<engine::StateTransfer> transfer;
  bool is_lacking = false;    ///< What the newest layout was to bring did not come.
  bool told_fetched = false;  ///< Of `next`.
  // Lifetime: the executor refers to the device, to the stages, to what the device keeps without
  // one, to the sums and rows by NCCL, and to the configuration's plan.
  std::unique_ptr<engine::Device> device;
  std::unique_ptr<Configuration> configuration;
  std::map<StageId, std::unique_ptr<engine::StageProgram>> stages;
  engine::StandbyState standby;
  std::shared_ptr<engine::NcclSums> sums;  ///< From layout to layout, as the device.
  std::shared_ptr<engine::NcclRows> rows;  ///< Likewise; null: rows go by messages.
  std::unique_ptr<engine::Executor> executor;
  std::queue<IterationPlanPtr> queue;  ///< At most two: the supervisor dispatches no more.
  bool running = false;
  bool prepared_sent = false;
  bool has_failed = false;     ///< The step that ran, which nobody has given up yet.
  std::int64_t last_step = 0;  ///< That was begun, in whatever layout; 0: none.
  std::map<std::string, at::Tensor> first_gradients;  ///< For `train.dump_gradients`.
  bool is_first_decided = false;  ///< Step 1 was decided while it ran here: nobody trains it again.

  static inline const char* name = "executor";
};

/// REQUIRES: spawned detached; on a host it computes in its handlers. `in_hand`: says what it is in
/// the middle of.
ExecutorActor::behavior_type executor(ExecutorActor::stateful_pointer<ExecutorState> self,
                                      NodeResources* resources, NodeActor node,
                                      std::int32_t local_index,
                                      std::shared_ptr<engine::WorkInHand> in_hand);

}  // namespace troupe::actors
