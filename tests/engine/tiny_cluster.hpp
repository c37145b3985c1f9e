// Devices of the tiny job in one process: every executor and stage is real, and so are the messages
// between them.
//
// One thread drives all devices in turn.

#pragma once

#include "tests/torch_catch.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/execution/device.hpp"
#include "engine/execution/executor.hpp"
#include "engine/execution/model_stage.hpp"
#include "engine/execution/parameter_shard.hpp"
#include "engine/execution/plan_slices.hpp"
#include "engine/iteration/prepared_votes.hpp"
#include "engine/layout/choose_layout.hpp"
#include "engine/state/seeded_store.hpp"
#include "tests/engine/tiny_job.hpp"
#include "transport/inproc/hub.hpp"
#include "transport/registry.hpp"

namespace troupe::engine {

/// Four nodes with one device each in this process, driven in turn by one thread.
class Cluster {
 public:
  /// `place` may put another plan, `wrap` another transport of each node, `program` another program
  /// of a stage, `wrap_device` another device in place of the usual.
  explicit Cluster(const job::Job& job = tiny_job(), std::vector<SlowRows> slow = {},
                   std::function<void(ExecutorOptions&)> edit = {},
                   const std::function<ParallelPlan(ParallelPlan)>& place = {},
                   const std::function<void(std::unique_ptr<transport::Transport>&)>& wrap = {},
                   std::function<StageProgram*(StageId, ModelStage&)> program = {},
                   std::function<void(std::unique_ptr<Device>&)> wrap_device = {})
      : program_(std::move(program)),
        slow_(std::move(slow)),
        edit_(std::move(edit)),
        wrap_device_(std::move(wrap_device)),
        setup_(prepare(job).value()),
        plan_(make_parallel_plan(setup_).value()) {
    if (place) plan_ = place(std::move(plan_));
    transport::TransportOptions options;
    options.hub = std::make_shared<transport::InprocHub>();
    for (std::int32_t node = 0; node < 4; ++node) {
      options.self = node;
      transports_.push_back(transport::create_transport("inproc", options).value());
      if (wrap) wrap(transports_.back());
    }
    for (auto& transport : transports_)
      for (std::int32_t peer = 0; peer < 4; ++peer)
        REQUIRE(
            transport->connect(peer, transports_[static_cast<std::size_t>(peer)]->address()).ok());
    stages_.resize(4);
    standbys_.resize(4);
    for (std::size_t device = 0; device < 4; ++device) build(device);
  }

  const ParallelPlan& plan() const { return plan_; }
  const JobSetup& setup() const { return setup_; }
  transport::Transport& transport(std::size_t node) { return *transports_[node]; }
  Executor& executor(std::size_t device) { return *executors_[device]; }

  void begin(std::int64_t batch) {
    plan_batch(batch);
    for (auto& executor : executors_) REQUIRE(executor->begin(iteration_, store_).ok());
  }

  /// The same where each device has what its node gets of the plan.
  void begin_slices(std::int64_t batch) {
    plan_batch(batch);
    const PlanSlices slices(*iteration_, plan_);
    for (std::size_t device = 0; device < executors_.size(); ++device)
      REQUIRE(executors_[device]->begin(slice_of(slices, device), store_).ok());
  }

  /// The same where each node has samples of its own, too.
  void begin(std::int64_t batch, std::span<SampleStore> stores) {
    plan_batch(batch);
    const PlanSlices slices(*iteration_, plan_);
    for (std::size_t device = 0; device < executors_.size(); ++device)
      REQUIRE(executors_[device]->begin(slice_of(slices, device), stores[device]).ok());
  }

  /// Advances all devices until each is at `goal`; returns the first error, if any.
  Status advance_to(Progress goal) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    const bool delayed = setup_.job.debug.delayed_device_ms > 0;
    std::vector<bool> there(executors_.size(), false);
    for (int round = 0; round < 5000 || (delayed && std::chrono::steady_clock::now() < end);
         ++round) {
      for (std::size_t device = 0; device < executors_.size(); ++device) {
        if (there[device] && goal == Progress::finished)
          continue;  // It has nothing to do any more.
        auto progress = executors_[device]->advance();
        if (!progress.ok()) return std::move(progress).error();
        there[device] = progress.value() == goal;
      }
      if (std::ranges::all_of(there, std::identity())) return Done{};
      std::this_thread::sleep_for(std::chrono::microseconds(delayed ? 20 : 0));
    }
    return Error{Errc::timed_out, "devices did not get there", {}, {}};
  }

  StepOutcome outcome() {
    PreparedVotes votes(iteration_->step, 1, 4);
    for (auto& executor : executors_) REQUIRE(votes.add(executor->prepared()));
    return votes.outcome(iteration_->trained_tokens, {1e-2, 1});
  }

  void decide(const Decision& decision) {
    for (auto& executor : executors_) executor->decide(decision);
  }

  /// A whole step, by the whole plan or by slices of it.
  void train(std::int64_t batch, bool in_slices = false) {
    if (in_slices)
      begin_slices(batch);
    else
      begin(batch);
    REQUIRE(advance_to(Progress::committing).ok());
    decide(outcome().decision);
    REQUIRE(advance_to(Progress::finished).ok());
  }

  /// A whole step that leaves the parameters alone; returns its loss.
  double loss_of(std::int64_t batch) {
    begin(batch);
    REQUIRE(advance_to(Progress::committing).ok());
    const double loss = outcome().loss;
    decide({batch + 1, false, 1, 0, "only its loss is asked for"});
    REQUIRE(advance_to(Progress::finished).ok());
    return loss;
  }

  /// What a device keeps without a stage.
  StandbyState& standby(std::size_t device) { return standbys_[device]; }

  /// What a holder of a group keeps of it, by its place in the plan: the engine's own, on which all
  /// stages here are built.
  ParameterShard& state(GroupId group, std::size_t holder) {
    const ParameterUse& use = plan_.groups[group.index()].uses[holder];
    const auto device = plan_.at(use.stage).devices.front();
    return dynamic_cast<ParameterShard&>(
        stages_[device.index()].at(use.stage)->state(group, use.layer));
  }

  /// What the stages of a device keep right now.
  Bytes activations(std::size_t device) const {
    Bytes sum;
    for (const auto& [id, stage] : stages_[device]) sum += stage->activations();
    return sum;
  }

  /// Copies of all parameters of all stages, in order.
  std::vector<at::Tensor> parameters() {
    std::vector<at::Tensor> copies;
    for (auto& device : stages_)
      for (auto& [id, stage] : device)
        for (auto* parameter : stage->parameters())
          copies.push_back(parameter->value.detach().clone());
    return copies;
  }

 private:
  void plan_batch(std::int64_t batch) {
    auto planned = plan_tiny_batch(setup_, plan_, store_, batch);
    REQUIRE(planned.ok());
    iteration_ = std::make_shared<const IterationPlan>(std::move(planned.value().iteration));
  }

  std::shared_ptr<const IterationPlan> slice_of(const PlanSlices& slices,
                                                std::size_t device) const {
    return std::make_shared<const IterationPlan>(slices.of(plan_.devices[device].node));
  }

  void build(std::size_t device) {
    std::map<StageId, StageProgram*> programs;
    const auto kept = seeded_store(setup_, plan_, DeviceId{device}).value();
    for (std::size_t i = 0; i < plan_.stages.size(); ++i) {
      if (plan_.stages[i].devices.front() != DeviceId{device}) continue;
      auto stage = ModelStage::create(plan_, StageId{i}, setup_.modules(), setup_.layers, kept);
      REQUIRE(stage.ok());
      programs[StageId{i}] = program_ ? program_(StageId{i}, *stage.value()) : stage.value().get();
      stages_[device][StageId{i}] = std::move(stage).value();
    }
    standbys_[device] =
        StandbyState::create(plan_, DeviceId{device}, kept, setup_.modules()).value();
    ExecutorOptions options;
    options.device = DeviceId{device};
    options.row_dtype = setup_.layers.dtype;
    options.epoch_number = 1;
    options.learning_rate_scales = setup_.learning_rate_scales;
    options.adamw = setup_.adamw;
    options.hash_parameters = true;
    options.slow_rows = slow_;
    if (edit_) edit_(options);
    devices_.push_back(make_device({setup_.job.debug.delayed_device_ms, device}));
    if (wrap_device_) wrap_device_(devices_.back());
    executors_.push_back(std::make_unique<Executor>(plan_, options, *transports_[device],
                                                    *devices_[device], std::move(programs),
                                                    standbys_[device], [] {}));
  }

  std::function<StageProgram*(StageId, ModelStage&)> program_;
  std::vector<SlowRows> slow_;
  std::function<void(ExecutorOptions&)> edit_;
  std::function<void(std::unique_ptr<Device>&)> wrap_device_;
  JobSetup setup_;
  ParallelPlan plan_;
  SampleStore store_;
  std::vector<std::unique_ptr<transport::Transport>> transports_;
  std::vector<std::map<StageId, std::unique_ptr<ModelStage>>> stages_;
  std::vector<StandbyState> standbys_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::unique_ptr<Executor>> executors_;
  std::shared_ptr<const IterationPlan> iteration_;
};

}  // namespace troupe::engine
