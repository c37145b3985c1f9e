// Runs the action list of one device: takes the next action, waits for what it needs from other
// devices, launches it; sends what it has made when it has completed. Never skips ahead, so that a
// run repeats to the bit.
//
// Not thread-safe: one thread owns it and calls `advance`, which never blocks: where an action must
// wait, it returns, and the transport or the device later calls `wake` (from any thread),
// upon which the owner calls `advance` again. Actors own it in training, a plain loop in tests.

#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/execution/device.hpp"
#include "engine/execution/executor_options.hpp"
#include "engine/execution/group_sums.hpp"
#include "engine/execution/host_parameters.hpp"
#include "engine/execution/sample_store.hpp"
#include "engine/execution/stage_program.hpp"
#include "engine/execution/standby_state.hpp"
#include "engine/execution/tensor_mailbox.hpp"
#include "engine/execution/work_in_hand.hpp"
#include "engine/iteration/reports.hpp"
#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

/// How far `advance` came.
enum class Progress : std::uint8_t {
  waiting,     ///< For another device, or for work of this one: `wake` follows.
  yielded,     ///< On demand (`ExecutorOptions::yields`): `advance` goes on.
  committing,  ///< PREPARED is ready; waits for `decide`.
  finished,    ///< The list is done; the report is ready.
};

class Executor : private Viewer {
 public:
  /// `stages` maps each stage of `plan` on this device to its program; there may be none.
  /// `standby`: what the device keeps without a stage. `device` runs what all of them compute. All
  /// referenced objects outlive the executor.
  Executor(const ParallelPlan& plan, ExecutorOptions options, transport::Transport& transport,
           Device& device, std::map<StageId, StageProgram*> stages, StandbyState& standby,
           std::function<void()> wake);
  ~Executor();  ///< Waits for what is under way on the device.
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Starts an iteration. Its receives are posted ahead of use up to `receive_bound`. One that
  /// failed and was not abandoned is given up first. REQUIRES: no other one is running.
  /// Errors: as `advance`, and `abandon` where one is given up first.
  /// `samples`: of this node, until the iteration ends; content from other nodes is added to them.
  Status begin(std::shared_ptr<const IterationPlan> plan, SampleStore& samples);

  /// Runs actions until one must wait.
  ///
  /// `committing` and `finished` come when all work has completed. From `committing` on no peer is
  /// needed: every holder has its sums, and one that is lost then does not keep this device from
  /// finishing a step that was decided.
  ///
  /// Errors: what a stage, the transport or a call to NCCL reports; infeasible: more memory was
  /// used than the plan promised (`check_promise`); internal: an exception of a stage. What stages
  /// report or throw has stage, step and samples. The iteration is then lost and `abandon` is the
  /// only legal call.
  Result<Progress> advance();

  /// The supervisor's word on this step; a second one is the same. REQUIRES: `advance` returned
  /// `committing`.
  void decide(const Decision& decision);

  /// Drops the unfinished iteration, if there is one, and what it holds. Parameters stay as they
  /// were unless COMMIT was decided; updates that were launched then are completed. Waits for the
  /// work that is under way.
  /// Errors: such an update failed, and its holder has half of it; internal: a stage threw.
  Status abandon();

  /// Copies of the reduced gradients of the groups whose first use is on this device, by name, into
  /// `target`. REQUIRES: `advance` returned `committing`, and nothing is decided.
  /// Errors: internal: a stage threw, with stage and step.
  Status copy_gradients(std::map<std::string, at::Tensor>& target);
  /// Values of the stages that the trained model is taken from, by name; the device's. Not while an
  /// iteration runs. Errors: as above, with the step before.
  Result<std::map<std::string, at::Tensor>> parameters();

  /// What the running iteration allows posted receives to hold.
  Bytes receive_bound() const { return mailbox_.bound(); }
  const Prepared& prepared() const { return prepared_; }
  /// Why the iteration is lost, where a stage threw or the device is lost; moves it out. At
  /// `committing`: why this device is, though it finishes the step if that is decided.
  std::optional<FailedWork> take_thrown() { return std::exchange(thrown_, std::nullopt); }
  /// Whether parameters are in host memory, so that nobody may read them. Not at `committing`.
  bool has_parameters_away() const { return !away_.empty(); }
  /// REQUIRES: finished. Moves the report out.
  DeviceReport take_report() { return std::move(report_); }

 private:
  /// What a module computed, for observers.
  struct Shown {
    ModuleId module;
    observers::Kind kind = observers::Kind::rows;
    at::Tensor values;
  };
  /// What work of an action leaves to whoever waits for it.
  struct Outcome {
    std::vector<Parcel> parcels;
    std::vector<MeasuredChunk> measured;  ///< In host memory.
    std::vector<HolderHash> hashes;
    at::Tensor entered;                 ///< What the device gives to a call for a sum.
    std::optional<Bytes> activations;   ///< Of the stages, after a computation.
    Bytes moved;                        ///< To host memory, or back from it.
    Bytes taken;                        ///< Of host memory, for good.
    std::vector<Shown> shown;           ///< In host memory.
    std::optional<std::string> thrown;  ///< By a stage, and not for want of memory.
    bool is_device_lost = false;        ///< It says that of its device.
    StageCall asked;                    ///< Last, by work of no action.
  };
  /// Work that was launched.
  struct InFlight {
    const Action* action = nullptr;  ///< None: it is no action of the list.
    std::vector<Arrival::Key> taken;
    std::shared_ptr<Outcome> outcome;
    std::shared_ptr<const Launch> launch;
  };
  using Work = std::function<Status(Outcome&)>;

  Result<bool> is_ready(const Action& action);
  void launch(const Action* action, Work work);
  Status complete_launches();
  void complete(const InFlight& done);
  Status check_memory(const InFlight& done) const;
  void follow_sum(const Action& action, const at::Tensor& entered);
  Result<bool> has_sum(const Action& action);
  Result<bool> has_arrived(const Action& action);
  Error note_failed_call(const Error& error);
  void note_times(const InFlight& done, std::int64_t cpu_ns);
  bool wants(ModuleId module, observers::Kind kind) const override;
  void show(ModuleId module, observers::Kind kind, at::Tensor values) override;
  void note_unseen(StageId id);
  std::shared_ptr<const observers::Observed> observed(const Action& action, Shown shown) const;
  std::vector<std::string> ids_of(const Action* action) const;
  Error describe(const Action* action, const std::string& thrown, std::string fix = {},
                 const StageCall& asked = {}) const;
  Error returned(const Action* action, const Error& error, const StageCall& asked = {}) const;
  FailedWork failed_work(const Action* action, const std::string& thrown, Error error) const;
  LongWork long_work(const Action* action, const StageCall& call) const;
  std::vector<AwaitedMessage> senders_of(const Action& action) const;
  void note_wait(const Action& action) const;
  void note_copy();
  Status end_work();
  static std::string thrown_words();
  std::string step_words() const;
  Status ask(StageId id, const std::string& call, const std::function<void()>& asks);
  Status let_go(StageId id, const std::string& call, const std::function<void()>& tell) const;
  void turn_to(Outcome& outcome, StageCall call) const;
  Work work_of(const Action& action);
  Work send(const Action& action);
  Status give(std::vector<Parcel> parcels, Outcome& outcome);
  Work receive(const Action& action);
  Work hand_on(const Action& action);
  Work send_content(const Action& action);
  Work receive_content(const Action& action);
  Work take_sums(const Action& action);
  Work move_activations(const Action& action);
  Work move_state(const Action& action);
  Status find_host_parameters();
  Work move_parameters(const Action& action);
  bool have_gone(ActionKind kind) const;
  void put_back_state();
  Status put_back_parameters();
  Status forget_state(GroupId group) const;
  Result<Bytes> bytes_in_host();
  Bytes held_by_stages() const;
  void note_moved(const InFlight& done);
  Work measure(GroupId group);
  std::shared_ptr<at::Tensor> take(Arrival::Key key);
  Work update(const Action& action);
  Status compute(const Action& action);
  void slow_down(const Action& action, std::int64_t begin_ns) const;
  double slowness(const SlowRows& slow, const Stage& stage,
                  const std::vector<std::int32_t>& part) const;
  Result<bool> is_decided();
  Status take_losses();
  bool may_update();
  void optimizer_step(StageId stage, const Decision& decision, std::vector<HolderHash>& hashes);
  void standby_step(const Decision& decision, std::vector<HolderHash>& hashes);
  void update(GroupId group, std::size_t holder, GroupState& state, const Decision& decision,
              std::vector<HolderHash>& hashes);
  bool is_first_here(const std::vector<ParameterUse>& uses, std::size_t index) const;
  /// What the device keeps of a group, and its place among the holders, as hashes have it.
  struct Kept {
    GroupState* state = nullptr;
    std::size_t holder = 0;
  };
  Kept kept(GroupId group) const;
  StageId keeper_of(GroupId group) const;
  void finish();
  Status check_sends();
  Status post_receives();
  Bytes bound_of_receives() const;
  std::vector<Arrival> arrivals_of(const Action& action) const;
  bool is_here(StageId stage) const { return stages_.contains(stage); }
  StageProgram& stage(StageId id) { return *stages_.at(id); }
  GroupState& holder(GroupId group, std::size_t index);
  at::ScalarType row_dtype() const { return options_.row_dtype; }
  at::ScalarType gradient_dtype() const;
  DeviceId called_by(const Message& message, StageId to) const;
  DeviceId caller_of(const Action& action) const;
  transport::Peer peer(StageId stage) const { return plan_.node_of(stage).value; }
  transport::Peer peer(DeviceId device) const { return plan_.devices[device.index()].node.value; }

  const ParallelPlan& plan_;
  ExecutorOptions options_;
  std::map<StageId, StageProgram*> stages_;
  StandbyState& standby_;
  Device& device_;
  std::function<void()> wake_;
  std::shared_ptr<const IterationPlan> iteration_;
  std::optional<SampleUnits> units_;  ///< Of the iteration.
  SampleStore* samples_ = nullptr;
  TensorMailbox mailbox_;
  GroupSums sums_;
  std::size_t next_action_ = 0;
  std::size_t next_post_ = 0;
  std::deque<InFlight> in_flight_;
  std::vector<Arrival::Key> taken_;      ///< By the action that is launched next.
  std::vector<Shown>* shown_ = nullptr;  ///< Of the work that runs.
  std::int64_t ready_ns_ = 0;
  bool is_prepared_ = false;                           ///< Of this iteration `commit` was reached.
  Bytes offloaded_;                                    ///< In host memory.
  std::map<StageId, HostParameters> host_parameters_;  ///< Of stages that give them away.
  std::set<StageId> away_;        ///< Of these, whose parameters leave or have not come back.
  std::vector<GroupId> fetched_;  ///< Whose moments come from host memory, and are not back there.
  std::int64_t held_up_ns_ = 0;   ///< Since when `may_update` says no; 0: it does not.
  Prepared prepared_;
  std::optional<Decision> decision_;
  DeviceReport report_;
  std::optional<FailedWork> thrown_;
  std::shared_ptr<const Launch> copy_in_hand_;  ///< As `ExecutorOptions::in_hand` has it.
};

}  // namespace troupe::engine
