#include "engine/contract/moves.hpp"

#include <ATen/Parallel.h>

#include <cstdint>
#include <limits>
#include <utility>

namespace troupe::engine {

namespace {

constexpr double kLateMs = 0.2;  // A round has some dozens of calls.
constexpr double kLearningRate = 1e-2;

/// A stage's state at a place that it has left: who goes on with it computes nothing but NaN.
void overwrite(const StateStore& left) {
  for (const ShardKey& key : left.keys())
    left.held(key).fill_(std::numeric_limits<double>::quiet_NaN());
}

class Moves {
 public:
  Moves(const StageBench& bench, StageId id, const StageRows& inputs)
      : bench_(bench), id_(id), inputs_(inputs) {}

  Result<std::vector<MovedRound>> run(std::unique_ptr<StageProgram> stage,
                                      const StateStore& state) {
    if (auto first = step_on(*here_, *stage, 1); !first.ok()) return first.error();
    const auto there = bench_.copy(state);
    if (!there.ok()) return there.error();
    for (const std::int64_t step : {2, 3}) {
      auto stayed = step_on(*here_, *stage, step);
      if (!stayed.ok()) return stayed.error();
      rounds_.push_back({{}, std::move(stayed).value(), {}});
    }
    stage.reset();
    overwrite(state);
    if (auto moved = go_on(there.value(), *late_, 2, "a device that completes work late");
        !moved.ok())
      return moved.error();
    for (const ShardKey& key : state.keys()) state.held(key).copy_(there.value().held(key));
    overwrite(there.value());
    if (auto moved = go_on(state, *here_, 3, "the device where it was first"); !moved.ok())
      return moved.error();
    return std::move(rounds_);
  }

 private:
  /// A round, and a step behind it.
  Result<StageOutcome> step_on(Device& device, StageProgram& stage, std::int64_t step) const {
    RoundOptions how;
    how.device = &device;
    auto made = bench_.round(stage, id_, how, inputs_);
    if (!made.ok()) return made;
    const Status updated = in_work(device, [&]() -> Status {
      take_step(bench_, id_, stage, step);
      return Done{};
    });
    if (!updated.ok()) return updated.error();
    return made;
  }

  /// The same of a stage that is made where the state is now.
  Status go_on(const StateStore& state, Device& device, std::int64_t step, const char* to) {
    const auto stage = bench_.make(id_, state);
    if (!stage.ok()) return stage.error();
    auto made = step_on(device, *stage.value(), step);
    if (!made.ok()) {
      Error error = std::move(made).error();
      error.message = std::string("moved to ") + to + ": " + error.message;
      return error;
    }
    MovedRound& round = rounds_[static_cast<std::size_t>(step - 2)];
    round.to = to;
    round.moved = std::move(made).value();
    return Done{};
  }

  const StageBench& bench_;
  StageId id_;
  const StageRows& inputs_;
  const std::unique_ptr<Device> here_ = make_device({});
  const std::unique_ptr<Device> late_ = late_device();
  std::vector<MovedRound> rounds_;
};

}  // namespace

std::unique_ptr<Device> late_device() {
  DeviceOptions options;
  options.delay_ms_max = kLateMs;
  options.threads = at::get_num_threads();
  return make_device(options);
}

void take_step(const StageBench& bench, StageId id, StageProgram& stage, std::int64_t step) {
  const auto& groups = bench.plan().groups;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    GroupState* first = nullptr;
    for (const ParameterUse& use : groups[g].uses) {
      if (use.stage != id) continue;
      GroupState& state = stage.state(GroupId{g}, use.layer);
      if (first != nullptr) first->gradients().add_(state.gradients());
      if (first == nullptr) first = &state;
    }
    if (first != nullptr) first->update(bench.setup().adamw, step, kLearningRate, 1);
  }
}

Result<std::vector<MovedRound>> moved_rounds(const StageBench& bench, StageId id,
                                             const StageRows& inputs,
                                             std::unique_ptr<StageProgram> stage,
                                             const StateStore& state) {
  return Moves(bench, id, inputs).run(std::move(stage), state);
}

}  // namespace troupe::engine
