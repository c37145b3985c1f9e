// Runs the action list of one device: takes the next action, waits for what it needs, computes,
// sends. Never skips ahead, so that a run repeats to the bit.
//
// Not thread-safe: one thread owns it and calls `advance`. It never blocks: where an action must
// wait, `advance` returns and the transport later calls `wake` (from any thread), upon which the
// owner calls `advance` again. Actors own it in training, a plain loop owns it in tests.

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/group_sums.hpp"
#include "engine/reports.hpp"
#include "engine/stage_program.hpp"
#include "engine/standby_state.hpp"
#include "engine/tensor_mailbox.hpp"
#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

/// A test hook: computing a part with this many rows of a module takes `factor` times as long. With
/// `per_sample`: a sample's share of the rows does, where the sample has this many.
struct SlowRows {
  ModuleId module;
  TokenCount min_rows = 0;
  TokenCount max_rows = 0;  ///< Included.
  double factor = 1;        ///< >= 1.
  bool per_sample = false;
};

/// How far `advance` came.
enum class Progress : std::uint8_t {
  waiting,     ///< For rows, gradients or a reduction: `wake` follows.
  yielded,     ///< On demand (`ExecutorOptions::yields`): `advance` goes on.
  committing,  ///< PREPARED is ready; waits for `decide`.
  finished,    ///< The list is done; the report is ready.
};

struct ExecutorOptions {
  DeviceId device;
  EpochNumber epoch_number = 0;
  /// Per module: its peak learning rate divided by the optimizer's.
  std::vector<double> learning_rate_scales;
  state::AdamWOptions adamw;
  bool hash_parameters = false;
  /// The model's, in which rows cross between stages; gradients are fp64 where it is, else fp32.
  at::ScalarType row_dtype = at::kFloat;
  std::vector<SlowRows> slow_rows;
  /// Asked before each action: true makes `advance` return, so that its owner can attend to
  /// something else. Empty: never.
  std::function<bool()> yields;
  /// Whether parameters may change now; where not, `wake` follows. Empty: always.
  std::function<bool()> may_update;
};

class Executor {
 public:
  /// `stages` maps each stage of `plan` on this device to its program; there may be none.
  /// `standby`: what the device keeps without a stage. All referenced objects outlive the executor.
  Executor(const ParallelPlan& plan, ExecutorOptions options, transport::Transport& transport,
           std::map<StageId, StageProgram*> stages, StandbyState& standby,
           std::function<void()> wake);

  /// Starts an iteration. Its receives are posted ahead of use up to `receive_bound`. REQUIRES:
  /// none is running.
  Status begin(std::shared_ptr<const IterationPlan> plan, const SampleStore& samples);

  /// Runs actions until one must wait.
  ///
  /// From `committing` on no peer is needed: every holder has its sums, and one that is lost then
  /// does not keep this device from finishing a step that was decided.
  ///
  /// Errors: what a stage or the transport reports; the iteration is then lost and `abandon` is
  /// the only legal call.
  Result<Progress> advance();

  /// The supervisor's word on this step. REQUIRES: `advance` returned `committing`.
  void decide(const Decision& decision);

  /// Drops the unfinished iteration, if there is one, and what it holds. Parameters stay as they
  /// were unless COMMIT was decided.
  void abandon();

  /// What the running iteration allows posted receives to hold.
  Bytes receive_bound() const { return mailbox_.bound(); }
  const Prepared& prepared() const { return prepared_; }
  /// REQUIRES: finished. Moves the report out.
  DeviceReport take_report() { return std::move(report_); }

 private:
  Result<bool> run(const Action& action);
  Result<bool> receive(const Action& action);
  Status send(const Action& action);
  Status compute(const Action& action);
  void slow_down(const Action& action, std::int64_t begin_ns) const;
  double slowness(const SlowRows& slow, const Stage& stage,
                  const std::vector<std::int32_t>& part) const;
  Result<bool> reduce(const Action& action);
  Result<bool> reduce_receive(const Action& action);
  Result<bool> commit();
  bool may_update();
  void optimizer_step(StageId stage);
  void standby_step();
  void update(GroupId group, std::size_t holder, HolderState& state);
  bool is_first_here(const std::vector<ParameterUse>& uses, std::size_t index) const;
  void finish();
  Status check_sends();
  Status post_receives();
  Bytes bound_of_receives() const;
  std::vector<Arrival> arrivals_of(const Action& action) const;
  bool is_here(StageId stage) const { return stages_.contains(stage); }
  StageProgram& stage(StageId id) { return *stages_.at(id); }
  HolderState& holder(GroupId group, std::size_t index);
  at::ScalarType row_dtype() const { return options_.row_dtype; }
  at::ScalarType gradient_dtype() const;
  transport::Peer peer(StageId stage) const { return plan_.node_of(stage).value; }

  const ParallelPlan& plan_;
  ExecutorOptions options_;
  std::map<StageId, StageProgram*> stages_;
  StandbyState& standby_;
  std::shared_ptr<const IterationPlan> iteration_;
  TensorMailbox mailbox_;
  GroupSums sums_;
  std::size_t next_action_ = 0;
  std::size_t next_post_ = 0;
  std::int64_t ready_ns_ = 0;
  bool is_prepared_ = false;     ///< Of this iteration `commit` was reached.
  std::int64_t held_up_ns_ = 0;  ///< Since when `may_update` says no; 0: it does not.
  Prepared prepared_;
  std::optional<Decision> decision_;
  DeviceReport report_;
};

}  // namespace troupe::engine
