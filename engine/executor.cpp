#include "engine/executor.hpp"

#include <chrono>
#include <cmath>
#include <optional>
#include <thread>
#include <utility>

#include "engine/packing.hpp"
#include "engine/receive_bound.hpp"

namespace troupe::engine {

using transport::TagKind;

Executor::Executor(const ParallelPlan& plan, ExecutorOptions options,
                   transport::Transport& transport, std::map<StageId, StageProgram*> stages,
                   StandbyState& standby, std::function<void()> wake)
    : plan_(plan),
      options_(std::move(options)),
      stages_(std::move(stages)),
      standby_(standby),
      mailbox_(transport, options_.epoch_number, std::move(wake)),
      sums_(plan, options_.device,
            [this](GroupId group, std::optional<std::size_t> use) -> at::Tensor& {
              return use ? holder(group, *use).gradients() : standby_.at(group).gradients();
            }) {}

at::ScalarType Executor::gradient_dtype() const {
  return row_dtype() == at::kDouble ? at::kDouble : at::kFloat;
}

HolderState& Executor::holder(GroupId group, std::size_t index) {
  const ParameterUse& use = plan_.groups[group.index()].uses[index];
  return stage(use.stage).state(group, use.layer);
}

Status Executor::begin(std::shared_ptr<const IterationPlan> plan, const SampleStore& samples) {
  iteration_ = std::move(plan);
  mailbox_.begin(iteration_->step, bound_of_receives());
  next_action_ = next_post_ = 0;
  decision_.reset();
  is_prepared_ = false;
  prepared_ = {iteration_->step, options_.epoch_number, options_.device, {}, {}};
  report_ = {iteration_->step, options_.epoch_number, options_.device, {}, {}, {}, {}, 0};
  for (auto& [id, program] : stages_)
    if (auto begun = program->begin(*iteration_, samples); !begun.ok()) return begun;
  ready_ns_ = observe::trace_now_ns();
  return Done{};
}

Result<Progress> Executor::advance() {
  const auto& actions = iteration_->actions[options_.device.index()];
  while (next_action_ < actions.size()) {
    if (auto posted = post_receives(); !posted.ok()) return std::move(posted).error();
    if (auto sent = check_sends(); !sent.ok()) return std::move(sent).error();
    if (options_.yields && options_.yields()) return Progress::yielded;
    const Action& action = actions[next_action_];
    const std::int64_t cpu_begin_ns = observe::thread_cpu_ns();
    auto ran = run(action);
    if (!ran.ok()) return std::move(ran).error();
    if (!ran.value())
      return action.kind == ActionKind::commit ? Progress::committing : Progress::waiting;
    // The slice begins when the device turned to the action, so that waiting shows.
    auto event = observe::trace_event(*iteration_, options_.device, action,
                                      static_cast<std::int64_t>(c10::elementSize(row_dtype())));
    event.begin_ns = ready_ns_;
    event.end_ns = ready_ns_ = observe::trace_now_ns();
    event.cpu_ns = observe::thread_cpu_ns() - cpu_begin_ns;
    report_.events.push_back(event);
    ++next_action_;
  }
  // The next iteration must not reuse a buffer that is still on its way out.
  if (auto sent = check_sends(); !sent.ok()) return std::move(sent).error();
  if (!mailbox_.all_sent()) return Progress::waiting;
  finish();
  return Progress::finished;
}

Result<bool> Executor::run(const Action& action) {
  const auto done = [](Status status) -> Result<bool> {
    if (!status.ok()) return std::move(status).error();
    return true;
  };
  switch (action.kind) {
    case ActionKind::forward:
    case ActionKind::backward:
    case ActionKind::backward_input:
    case ActionKind::backward_weight:
    case ActionKind::recompute: return done(compute(action));
    case ActionKind::send:
    case ActionKind::send_gradient: return done(send(action));
    case ActionKind::receive:
    case ActionKind::receive_gradient: return receive(action);
    case ActionKind::reduce_send: return sums_.send(action.group, mailbox_), true;
    case ActionKind::reduce: return reduce(action);
    case ActionKind::reduce_receive: return reduce_receive(action);
    case ActionKind::commit: return commit();
    case ActionKind::optimizer_step:
      if (!may_update()) return false;
      if (!decision_->commit) return true;
      return action.stage.valid() ? optimizer_step(action.stage) : standby_step(), true;
  }
  return Error{Errc::internal, "unknown action in the plan", {}, {}};
}

Status Executor::compute(const Action& action) {
  const PartKey part{action.microbatch, action.part};
  StageProgram& program = stage(action.stage);
  Status status = Done{};
  const std::int64_t begin_ns = observe::trace_now_ns();
  switch (action.kind) {
    case ActionKind::forward: status = program.forward(part); break;
    case ActionKind::backward: status = program.backward(part); break;
    case ActionKind::backward_input: status = program.backward_input(part); break;
    case ActionKind::backward_weight: status = program.backward_weight(part); break;
    default: status = program.recompute(part); break;
  }
  if (!options_.slow_rows.empty()) slow_down(action, begin_ns);
  Bytes activations = mailbox_.held();
  for (const auto& [id, other] : stages_) activations += other->activations();
  report_.peak_activations = std::max(report_.peak_activations, activations);
  return status;
}

/// How many times longer a part takes for this reason.
double Executor::slowness(const SlowRows& slow, const Stage& stage,
                          const std::vector<std::int32_t>& part) const {
  const auto rows_of = [&](ModuleId module, const std::vector<std::int32_t>& samples) {
    return row_count(row_spans(plan_.model, module, RowKind::hidden, iteration_->samples, samples));
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

/// Sleeps as long as a slow device would have computed on.
void Executor::slow_down(const Action& action, std::int64_t begin_ns) const {
  const auto& part = samples_of(plan_, *iteration_, action.stage, action.microbatch, action.part);
  double factor = 1;
  for (const SlowRows& slow : options_.slow_rows)
    factor = std::max(factor, slowness(slow, plan_.at(action.stage), part));
  const auto took_ns = static_cast<double>(observe::trace_now_ns() - begin_ns);
  std::this_thread::sleep_for(std::chrono::duration<double, std::nano>((factor - 1) * took_ns));
}

Status Executor::send(const Action& action) {
  const Message& message = iteration_->at(action.message);
  const bool gradient = action.kind == ActionKind::send_gradient;
  const StageId from = gradient ? message.destination.stage : message.source.stage;
  const StageId to = gradient ? message.source.stage : message.destination.stage;
  auto tensor =
      gradient ? stage(from).gradient_for(action.message) : stage(from).rows_for(action.message);
  if (!tensor.ok()) return std::move(tensor).error();
  const Arrival::Key key{gradient ? TagKind::gradient : TagKind::rows, action.message.index()};
  if (is_here(to)) {
    mailbox_.put(key, std::move(tensor).value());
  } else {
    mailbox_.send(key, peer(to), tensor.value());
  }
  return Done{};
}

Result<bool> Executor::receive(const Action& action) {
  const auto expected = arrivals_of(action);
  auto arrived = mailbox_.arrived(expected);
  if (!arrived.ok() || !arrived.value()) return arrived;
  const Message& message = iteration_->at(action.message);
  at::Tensor tensor = mailbox_.take(expected.front().key);
  if (action.kind == ActionKind::receive_gradient) {
    stage(message.source.stage).accept_gradient(action.message, std::move(tensor));
  } else {
    stage(message.destination.stage).accept_rows(action.message, std::move(tensor));
  }
  return true;
}

/// Waits for all holders before it adds any: the bits do not depend on who was first.
Result<bool> Executor::reduce(const Action& action) {
  auto arrived = mailbox_.arrived(arrivals_of(action));
  if (!arrived.ok() || !arrived.value()) return arrived;
  prepared_.norms.push_back(sums_.reduce(action.group, mailbox_));
  return true;
}

Result<bool> Executor::reduce_receive(const Action& action) {
  auto arrived = mailbox_.arrived(arrivals_of(action));
  if (!arrived.ok() || !arrived.value()) return arrived;
  sums_.receive(action.group, mailbox_);
  return true;
}

Status Executor::check_sends() {
  if (!is_prepared_) return mailbox_.check();
  mailbox_.forget_ended_sends();
  return Done{};
}

Result<bool> Executor::commit() {
  if (decision_) return true;
  is_prepared_ = true;
  if (prepared_.losses.empty())
    for (auto& [id, program] : stages_)
      for (auto& loss : program->losses()) prepared_.losses.push_back(std::move(loss));
  return false;
}

void Executor::decide(const Decision& decision) { decision_ = decision; }

/// Whether no earlier use of the group lies on this device: the sum of all lies with the first one,
/// and the device has one value with one optimizer.
bool Executor::is_first_here(const std::vector<ParameterUse>& uses, std::size_t index) const {
  for (std::size_t u = 0; u < index; ++u)
    if (is_here(uses[u].stage)) return false;
  return true;
}

/// A checkpoint that is being copied holds the first optimizer step of an iteration up.
bool Executor::may_update() {
  const bool free = !options_.may_update || !decision_->commit || options_.may_update();
  const std::int64_t now_ns = observe::trace_now_ns();
  if (!free && held_up_ns_ == 0) held_up_ns_ = now_ns;
  if (free && held_up_ns_ != 0)
    report_.stall_ms += static_cast<double>(now_ns - std::exchange(held_up_ns_, 0)) / 1e6;
  return free;
}

void Executor::optimizer_step(StageId id) {
  for (std::size_t g = 0; g < plan_.groups.size(); ++g) {
    const auto& uses = plan_.groups[g].uses;
    for (std::size_t i = 0; i < uses.size(); ++i)
      if (uses[i].stage == id && is_first_here(uses, i))
        update(GroupId{g}, i, holder(GroupId{g}, i));
  }
}

void Executor::standby_step() {
  for (const auto& [group, state] : standby_.groups())
    update(group, plan_.groups[group.index()].uses.size(), *state);
}

/// Every holder of a group takes the same step, the learning rate of its first layer's module.
void Executor::update(GroupId group, std::size_t holder, HolderState& state) {
  const ModuleId module = plan_.groups[group.index()].uses.front().layer.module;
  const double scale = options_.learning_rate_scales[module.index()];
  state.update(options_.adamw, iteration_->step, decision_->learning_rate * scale, decision_->clip);
  if (options_.hash_parameters)
    report_.hashes.push_back({group, static_cast<std::int32_t>(holder), state.hash()});
}

void Executor::finish() {
  report_.peak_received = mailbox_.peak();
  iteration_.reset();
}

void Executor::abandon() {
  mailbox_.begin(0, {});
  for (auto& [id, program] : stages_) program->abandon();
  iteration_.reset();
}

std::vector<Arrival> Executor::arrivals_of(const Action& action) const {
  std::vector<Arrival> arrivals;
  const auto add_rows = [&](TagKind kind, StageId from) {
    const Message& message = iteration_->at(action.message);
    arrivals.push_back({{kind, action.message.index()},
                        peer(from),
                        is_here(from),
                        {message.rows, message.width},
                        row_dtype()});
  };
  switch (action.kind) {
    case ActionKind::receive:
      add_rows(TagKind::rows, iteration_->at(action.message).source.stage);
      break;
    case ActionKind::receive_gradient:
      add_rows(TagKind::gradient, iteration_->at(action.message).destination.stage);
      break;
    case ActionKind::reduce:
    case ActionKind::reduce_receive: return sums_.arrivals_of(action, gradient_dtype());
    default: break;
  }
  return arrivals;
}

Bytes Executor::bound_of_receives() const {
  std::vector<Bytes> received;
  for (const Action& action : iteration_->actions[options_.device.index()])
    received.push_back(bytes_to_post(arrivals_of(action)));
  return engine::receive_bound(*iteration_, options_.device, received);
}

Status Executor::post_receives() {
  const auto& actions = iteration_->actions[options_.device.index()];
  while (next_post_ < actions.size()) {
    auto posted = mailbox_.post(arrivals_of(actions[next_post_]));
    if (!posted.ok()) return std::move(posted).error();
    if (!posted.value()) break;
    ++next_post_;
  }
  return Done{};
}

}  // namespace troupe::engine
