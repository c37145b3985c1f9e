// What the actions of a list compute: the executor's work on its device.

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/execution/content_packing.hpp"
#include "engine/execution/executor.hpp"
#include "engine/execution/packing.hpp"
#include "runtime/vocabulary/host_state.hpp"

namespace troupe::engine {

using transport::TagKind;

namespace {

/// What a stage has for a message, where the plan promises the other end something else; empty: all
/// well. Whoever receives posts a buffer of the promised size, and takes the bytes that lie behind
/// each other.
std::string misfit(const at::Tensor& given, const Message& message, const std::string& module,
                   bool gradient, at::ScalarType type) {
  const std::vector<std::int64_t> wanted{message.rows, message.width};
  const bool is_wanted = given.defined() && given.sizes() == at::IntArrayRef(wanted);
  if (is_wanted && given.scalar_type() == type && given.is_contiguous()) return {};
  const std::string what =
      (gradient ? "the gradient of the rows of '" : "the tensor with the rows of '") + module +
      "' ";
  if (!given.defined()) return what + "is not there";
  if (!is_wanted)
    return what + "has the shape " + shape_text(given) + " instead of " +
           std::to_string(message.rows) + " x " + std::to_string(message.width);
  if (given.scalar_type() == type) return what + "is not contiguous";
  return what + "holds " + c10::toString(given.scalar_type()) + " instead of " +
         c10::toString(type);
}

}  // namespace

/// What an action computes. REQUIRES: it is ready.
Executor::Work Executor::work_of(const Action& action) {
  switch (action.kind) {
    case ActionKind::forward:
    case ActionKind::backward:
    case ActionKind::backward_input:
    case ActionKind::backward_weight:
      return [this, &action](Outcome& outcome) {
        shown_ = &outcome.shown;
        Status status = compute(action);
        shown_ = nullptr;
        outcome.activations = held_by_stages();
        return status;
      };
    case ActionKind::offload:
    case ActionKind::fetch: return move_activations(action);
    case ActionKind::evict_parameters:
    case ActionKind::fetch_parameters: return move_parameters(action);
    case ActionKind::fetch_state:
    case ActionKind::offload_state: return move_state(action);
    case ActionKind::send:
    case ActionKind::send_gradient: return send(action);
    case ActionKind::receive:
    case ActionKind::receive_gradient: return receive(action);
    case ActionKind::relay:
    case ActionKind::relay_gradient: return hand_on(action);
    case ActionKind::send_content: return send_content(action);
    case ActionKind::receive_content: return receive_content(action);
    case ActionKind::reduce_send:
      return [this, &action](Outcome& outcome) -> Status {
        Status given = give(sums_.send(action.group), outcome);
        if (sums_.is_call(action.group)) outcome.entered = sums_.entered(action.group);
        return given;
      };
    case ActionKind::reduce_partial:
    case ActionKind::reduce:
    case ActionKind::reduce_relay:
    case ActionKind::reduce_receive: return take_sums(action);
    case ActionKind::commit: break;
    case ActionKind::optimizer_step: return update(action);
  }
  return [](Outcome&) -> Status { return Done{}; };
}

Bytes Executor::held_by_stages() const {
  Bytes held;
  for (const auto& [id, program] : stages_) held += program->activations();
  return held;
}

Executor::Work Executor::move_activations(const Action& action) {
  return [this, &action](Outcome& outcome) -> Status {
    const PartKey part{action.microbatch, action.part};
    StageProgram& program = stage(action.stage);
    const auto moved = action.kind == ActionKind::offload ? program.offload(part, device_)
                                                          : program.fetch(part, device_);
    if (!moved.ok()) return returned(&action, moved.error());
    outcome.moved = moved.value();
    outcome.activations = held_by_stages();
    return Done{};
  };
}

Status Executor::compute(const Action& action) {
  const PartKey part{action.microbatch, action.part};
  StageProgram& program = stage(action.stage);
  // LibTorch would read at no address.
  if (const auto own = host_parameters_.find(action.stage);
      own != host_parameters_.end() && own->second.is_away())
    return Error{Errc::internal, "a stage computes whose parameters are in host memory", {}, {}};
  Status status = Done{};
  const std::int64_t begin_ns = observe::thread_cpu_ns();
  switch (action.kind) {
    case ActionKind::forward: status = program.forward(part); break;
    case ActionKind::backward: status = program.backward(part); break;
    case ActionKind::backward_input: status = program.backward_input(part); break;
    default: status = program.backward_weight(part); break;
  }
  if (!status.ok()) return returned(&action, status.error());
  if (!options_.slow_rows.empty()) slow_down(action, begin_ns);
  return Done{};
}

/// How many times longer a part takes for this reason.
double Executor::slowness(const SlowRows& slow, const Stage& stage,
                          const std::vector<std::int32_t>& part) const {
  const auto rows_of = [&](ModuleId module, const std::vector<std::int32_t>& samples) {
    return row_count(row_spans(plan_.model, module, RowKind::hidden, units_->shapes(), samples));
  };
  const auto is_slow = [&](TokenCount rows) {
    return rows >= slow.min_rows && rows <= slow.max_rows;
  };
  TokenCount all = 0, slow_rows = 0;
  for (const LayerRun& run : stage.runs) {
    const TokenCount rows = rows_of(run.module, part);
    all += rows;
    if (run.module != slow.module) continue;
    if (!slow.per_sample && is_slow(rows)) return slow.factor;
    for (const auto sample : part)
      if (const TokenCount own = rows_of(run.module, {sample}); slow.per_sample && is_slow(own))
        slow_rows += own;
  }
  if (slow_rows == 0) return 1;
  return 1 + (slow.factor - 1) * static_cast<double>(slow_rows) / static_cast<double>(all);
}

/// Sleeps as long as a slow device would have computed on: by processor time, as others that want
/// the same cores would slow it down by their own work times the factor.
void Executor::slow_down(const Action& action, std::int64_t begin_ns) const {
  const auto& part = samples_of(plan_, *iteration_, action.stage, action.microbatch, action.part);
  double factor = 1;
  for (const SlowRows& slow : options_.slow_rows)
    if (iteration_->step >= slow.from_step &&
        (slow.to_step == 0 || iteration_->step <= slow.to_step))
      factor = std::max(factor, slowness(slow, plan_.at(action.stage), part));
  const auto took_ns = static_cast<double>(observe::thread_cpu_ns() - begin_ns);
  std::this_thread::sleep_for(std::chrono::duration<double, std::nano>((factor - 1) * took_ns));
}

Executor::Work Executor::send(const Action& action) {
  const Message& message = iteration_->at(action.message);
  const bool gradient = action.kind == ActionKind::send_gradient;
  const StageId from = gradient ? message.destination.stage : message.source.stage;
  const StageId to = gradient ? message.source.stage : message.destination.stage;
  const DeviceId relay = message.relay;
  const TagKind kind = relay.valid()
                           ? (gradient ? TagKind::passing_gradient : TagKind::passing_rows)
                           : (gradient ? TagKind::gradient : TagKind::rows);
  const Arrival::Key key{kind, action.message.index()};
  const auto bytes =
      message.rows * message.width * static_cast<std::int64_t>(c10::elementSize(row_dtype()));
  auto place = is_here(to) && !relay.valid() ? mailbox_.put(key, Bytes{bytes}) : nullptr;
  const transport::Peer next = relay.valid() ? peer(relay) : peer(to);
  const DeviceId called = called_by(message, to);
  return [=, this, &action](Outcome& outcome) -> Status {
    const MessageId id = action.message;
    auto tensor = gradient ? stage(from).gradient_for(id) : stage(from).rows_for(id);
    if (!tensor.ok()) return returned(&action, tensor.error());
    const Message& planned = iteration_->at(id);
    const auto& module = plan_.model.at(planned.module).name;
    if (auto fault = misfit(tensor.value(), planned, module, gradient, row_dtype());
        !fault.empty()) {
      outcome.thrown = fault;
      return describe(&action, fault);
    }
    if (place == nullptr) return give({{key, next, std::move(tensor).value(), called}}, outcome);
    *place = std::move(tensor).value();
    return Done{};
  };
}

Status Executor::give(std::vector<Parcel> parcels, Outcome& outcome) {
  for (Parcel& parcel : parcels)
    if (!parcel.called.valid() && !device_.staging())
      parcel.tensor = device_.to_host(std::move(parcel.tensor));
  outcome.parcels = std::move(parcels);
  return Done{};
}

Executor::Work Executor::receive(const Action& action) {
  const Message& message = iteration_->at(action.message);
  const bool gradient = action.kind == ActionKind::receive_gradient;
  const StageId to = gradient ? message.source.stage : message.destination.stage;
  const Arrival arrival = arrivals_of(action).front();
  auto taken = take(arrival.key);
  const bool is_on_device = arrival.local || caller_of(action).valid();
  return [=, this, id = action.message](Outcome&) -> Status {
    at::Tensor rows = is_on_device ? std::move(*taken) : device_.bring(std::move(*taken));
    if (gradient) {
      stage(to).accept_gradient(id, std::move(rows));
    } else {
      stage(to).accept_rows(id, std::move(rows));
    }
    return Done{};
  };
}

/// Rows that pass stay in host memory: no stage of this device looks at them.
Executor::Work Executor::hand_on(const Action& action) {
  const Message& message = iteration_->at(action.message);
  const bool gradient = action.kind == ActionKind::relay_gradient;
  const Arrival::Key key{gradient ? TagKind::gradient : TagKind::rows, action.message.index()};
  const StageId to = gradient ? message.source.stage : message.destination.stage;
  auto taken = take(arrivals_of(action).front().key);
  return [key, next = peer(to), taken = std::move(taken)](Outcome& outcome) -> Status {
    outcome.parcels.push_back({key, next, std::move(*taken), {}, /*in_host=*/true});
    return Done{};
  };
}

/// Content is in host memory at both ends, wherever stages compute.
Executor::Work Executor::send_content(const Action& action) {
  return [this, id = action.delivery](Outcome& outcome) -> Status {
    const Delivery& delivery = iteration_->at(id);
    auto packed = pack_content(delivery, *units_, *samples_, options_.picture_scales);
    if (!packed.ok()) return std::move(packed).error();
    outcome.parcels.push_back({{TagKind::content, id.index()},
                               peer(delivery.destination.stage),
                               std::move(packed).value(),
                               {},
                               /*in_host=*/true});
    return Done{};
  };
}

Executor::Work Executor::receive_content(const Action& action) {
  auto taken = take(arrivals_of(action).front().key);
  return [this, id = action.delivery, taken = std::move(taken)](Outcome&) -> Status {
    return unpack_content(iteration_->at(id), *units_, std::exchange(*taken, {}), *samples_,
                          options_.picture_scales);
  };
}

std::shared_ptr<at::Tensor> Executor::take(Arrival::Key key) {
  taken_.push_back(key);
  return mailbox_.take(key);
}

/// All that an action adds is there before any is added: the bits do not depend on who was first.
Executor::Work Executor::take_sums(const Action& action) {
  std::vector<std::shared_ptr<at::Tensor>> taken;
  for (const Arrival& arrival : arrivals_of(action)) taken.push_back(take(arrival.key));
  return [this, &action, taken = std::move(taken)](Outcome& outcome) -> Status {
    std::vector<at::Tensor> chunks;
    for (const auto& chunk : taken) chunks.push_back(device_.bring(std::move(*chunk)));
    switch (action.kind) {
      case ActionKind::reduce_partial:
        return give(sums_.reduce_partial(action.group, std::move(chunks)), outcome);
      case ActionKind::reduce: return give(sums_.reduce(action.group, std::move(chunks)), outcome);
      case ActionKind::reduce_relay:
        return give(sums_.relay(action.group, std::move(chunks)), outcome);
      default: sums_.receive(action.group, std::move(chunks)); return Done{};
    }
  };
}

/// Who read the norm here would wait for the device; it is there when the work has completed.
Executor::Work Executor::measure(GroupId group) {
  return [this, group](Outcome& outcome) -> Status {
    turn_to(outcome, {keeper_of(group), "own_updates"});
    const auto& left_out = kept(group).state->own_updates();
    turn_to(outcome, {keeper_of(group), "gradients"});
    MeasuredChunk chunk = sums_.measure(group, left_out);
    chunk.numbers = device_.to_host(std::move(chunk.numbers));
    outcome.measured.push_back(std::move(chunk));
    return Done{};
  };
}

/// Whether no earlier use of the group lies on this device: the sum of all lies with the first one,
/// and the device has one value with one optimizer.
bool Executor::is_first_here(const std::vector<ParameterUse>& uses, std::size_t index) const {
  for (std::size_t u = 0; u < index; ++u)
    if (is_here(uses[u].stage)) return false;
  return true;
}

Executor::Work Executor::update(const Action& action) {
  return [this, stage = action.stage, group = action.group,
          decision = *decision_](Outcome& outcome) -> Status {
    if (!decision.commit) return Done{};
    if (group.valid()) {
      const Kept own = kept(group);
      TORCH_CHECK(own.state->has_fetched_state(), "an update of moments that are in host memory");
      update(group, own.holder, *own.state, decision, outcome.hashes);
    } else if (stage.valid()) {
      optimizer_step(stage, decision, outcome.hashes);
    } else {
      standby_step(decision, outcome.hashes);
    }
    return Done{};
  };
}

void Executor::optimizer_step(StageId id, const Decision& decision,
                              std::vector<HolderHash>& hashes) {
  for (std::size_t g = 0; g < plan_.groups.size(); ++g) {
    if (moments_in_host(plan_, GroupId{g})) continue;  // In a step of its own.
    const auto& uses = plan_.groups[g].uses;
    for (std::size_t i = 0; i < uses.size(); ++i)
      if (uses[i].stage == id && is_first_here(uses, i))
        update(GroupId{g}, i, holder(GroupId{g}, i), decision, hashes);
  }
}

void Executor::standby_step(const Decision& decision, std::vector<HolderHash>& hashes) {
  for (const auto& [group, state] : standby_.groups())
    if (!moments_in_host(plan_, group))
      update(group, plan_.groups[group.index()].uses.size(), *state, decision, hashes);
}

/// Every holder of a group takes the same step, the learning rate of its first layer's module.
void Executor::update(GroupId group, std::size_t holder, GroupState& state,
                      const Decision& decision, std::vector<HolderHash>& hashes) {
  const ModuleId module = plan_.groups[group.index()].uses.front().layer.module;
  const double scale = options_.learning_rate_scales[module.index()];
  state.update(options_.adamw, iteration_->step, decision.learning_rate * scale, decision.clip);
  if (options_.hash_parameters)
    hashes.push_back({group, static_cast<std::int32_t>(holder), state.hash()});
}

}  // namespace troupe::engine
