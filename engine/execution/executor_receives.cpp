#include <utility>
#include <vector>

#include "engine/execution/executor.hpp"
#include "engine/execution/receive_bound.hpp"

namespace troupe::engine {

using transport::TagKind;

std::vector<Arrival> Executor::arrivals_of(const Action& action) const {
  std::vector<Arrival> arrivals;
  const auto add_rows = [&](TagKind kind, transport::Peer from, bool local) {
    const Message& message = iteration_->at(action.message);
    arrivals.push_back(
        {{kind, action.message.index()}, from, local, {message.rows, message.width}, row_dtype()});
  };
  // Rows come from the stage that makes them, or from the device that they pass.
  const auto add_last_leg = [&](TagKind kind, StageId from) {
    const DeviceId relay = iteration_->at(action.message).relay;
    add_rows(kind, relay.valid() ? peer(relay) : peer(from), !relay.valid() && is_here(from));
  };
  switch (action.kind) {
    case ActionKind::receive:
      add_last_leg(TagKind::rows, iteration_->at(action.message).source.stage);
      break;
    case ActionKind::receive_gradient:
      add_last_leg(TagKind::gradient, iteration_->at(action.message).destination.stage);
      break;
    case ActionKind::relay:
      add_rows(TagKind::passing_rows, peer(iteration_->at(action.message).source.stage), false);
      break;
    case ActionKind::relay_gradient:
      add_rows(TagKind::passing_gradient, peer(iteration_->at(action.message).destination.stage),
               false);
      break;
    case ActionKind::receive_content: {
      const Delivery& delivery = iteration_->at(action.delivery);
      arrivals.push_back({{TagKind::content, action.delivery.index()},
                          plan_.devices[delivery.from.index()].node.value,
                          false,
                          {delivery.bytes.count()},
                          at::kByte});
      break;
    }
    case ActionKind::reduce_partial:
    case ActionKind::reduce:
    case ActionKind::reduce_relay:
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
    const Action& action = actions[next_post_];
    auto posted = mailbox_.post(arrivals_of(action), caller_of(action));
    // No message is refused, so it is a call.
    if (!posted.ok()) return note_failed_call(posted.error());
    if (!posted.value()) break;
    ++next_post_;
  }
  return Done{};
}

/// What sends what an action takes from other devices: of each of `arrivals_of`, in their order.
std::vector<AwaitedMessage> Executor::senders_of(const Action& action) const {
  AwaitedMessage sent;
  sent.sent_in.message = action.message;
  sent.sent_in.delivery = action.delivery;
  const auto by_stage = [&](StageId stage, ActionKind kind) {
    sent.from = plan_.at(stage).devices.front();
    sent.sent_in.kind = kind;
  };
  // Rows come from the stage that makes them, or from the device that they pass.
  const auto by_last_leg = [&](StageId stage, ActionKind sends, ActionKind passes) {
    by_stage(stage, sends);
    const DeviceId relay = iteration_->at(action.message).relay;
    if (!relay.valid()) return;
    sent.from = relay;
    sent.sent_in.kind = passes;
  };
  switch (action.kind) {
    case ActionKind::receive:
      by_last_leg(iteration_->at(action.message).source.stage, ActionKind::send, ActionKind::relay);
      break;
    case ActionKind::receive_gradient:
      by_last_leg(iteration_->at(action.message).destination.stage, ActionKind::send_gradient,
                  ActionKind::relay_gradient);
      break;
    case ActionKind::relay:
      by_stage(iteration_->at(action.message).source.stage, ActionKind::send);
      break;
    case ActionKind::relay_gradient:
      by_stage(iteration_->at(action.message).destination.stage, ActionKind::send_gradient);
      break;
    case ActionKind::receive_content:
      sent.from = iteration_->at(action.delivery).from;
      sent.sent_in.kind = ActionKind::send_content;
      break;
    case ActionKind::reduce_partial:
    case ActionKind::reduce:
    case ActionKind::reduce_relay:
    case ActionKind::reduce_receive: return sums_.senders_of(action);
    default: return {};
  }
  return {sent};
}

/// While work of its own is under way a device waits for nobody, and has not sent yet what that
/// makes.
void Executor::note_wait(const Action& action) const {
  if (options_.in_hand == nullptr || !in_flight_.empty()) return;
  LongWait wait{options_.device, iteration_->step, options_.epoch_number,
                static_cast<std::int64_t>(next_action_)};
  const auto arrivals = arrivals_of(action);
  const auto senders = senders_of(action);
  for (std::size_t i = 0; i < arrivals.size(); ++i)
    if (!mailbox_.has(arrivals[i])) wait.awaited.push_back(senders[i]);
  options_.in_hand->waits(std::move(wait));
}

/// What leaves counts as sent when the device has gone on: one whose copy hangs would seem to wait
/// for others, who wait for that.
void Executor::note_copy() {
  if (options_.in_hand == nullptr) return;
  auto copy = mailbox_.copy_under_way();
  if (copy == copy_in_hand_) return;
  copy_in_hand_ = copy;
  options_.in_hand->copies(std::move(copy));
}

/// Whether a sum is there that this device does not add up.
Result<bool> Executor::has_sum(const Action& action) {
  if (!sums_.is_call(action.group)) return has_arrived(action);
  auto ended = options_.calls->has_ended(action.group);
  if (!ended.ok()) return note_failed_call(ended.error());
  return ended;
}

Result<bool> Executor::has_arrived(const Action& action) {
  auto arrived = mailbox_.arrived(arrivals_of(action));
  if (!arrived.ok() && options_.rows != nullptr) return note_failed_call(arrived.error());
  return arrived;
}

/// Rows that pass a third device lie in host memory there: none of their ways is a call.
DeviceId Executor::called_by(const Message& message, StageId to) const {
  const DeviceId device = plan_.at(to).devices.front();
  const bool is_called =
      options_.rows != nullptr && !message.relay.valid() && options_.rows->sends_to(device);
  return is_called ? device : DeviceId{};
}

/// The device that what an action waits for comes from by a call; invalid: it comes otherwise.
DeviceId Executor::caller_of(const Action& action) const {
  const bool is_gradient = action.kind == ActionKind::receive_gradient;
  if (options_.rows == nullptr || (!is_gradient && action.kind != ActionKind::receive)) return {};
  const Message& message = iteration_->at(action.message);
  const MessageEnd& from = is_gradient ? message.destination : message.source;
  const DeviceId device = plan_.at(from.stage).devices.front();
  const bool is_called = !message.relay.valid() && options_.rows->receives_from(device);
  return is_called ? device : DeviceId{};
}

}  // namespace troupe::engine
