#include "runtime/observe/trace_event.hpp"

#include <ctime>
#include <limits>

namespace troupe::observe {

namespace {

std::int64_t read_clock(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// The offset from the tightest of several readings: a thread that is interrupted between its two
// monotonic readings measures a wide bracket, which then loses.
std::int64_t measure_offset() {
  std::int64_t offset = 0;
  std::int64_t tightest = std::numeric_limits<std::int64_t>::max();
  for (int i = 0; i < 16; ++i) {
    const auto before = read_clock(CLOCK_MONOTONIC);
    const auto real = read_clock(CLOCK_REALTIME);
    const auto after = read_clock(CLOCK_MONOTONIC);
    if (after - before >= tightest) continue;
    tightest = after - before;
    offset = real - (before + (after - before) / 2);
  }
  return offset;
}

bool at_source(ActionKind kind) {
  return kind == ActionKind::send || kind == ActionKind::receive_gradient;
}

}  // namespace

TimeKind time_kind(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward:
    case ActionKind::backward:
    case ActionKind::backward_input:
    case ActionKind::backward_weight: return TimeKind::compute;
    case ActionKind::reduce_partial:
    case ActionKind::reduce:
    case ActionKind::optimizer_step: return TimeKind::update;
    case ActionKind::send:
    case ActionKind::send_gradient:
    case ActionKind::send_content:
    case ActionKind::reduce_send: return TimeKind::transfer;
    case ActionKind::offload:
    case ActionKind::fetch:
    case ActionKind::evict_parameters:
    case ActionKind::fetch_parameters:
    case ActionKind::fetch_state:
    case ActionKind::offload_state: return TimeKind::offload;
    case ActionKind::receive:
    case ActionKind::receive_gradient:
    case ActionKind::receive_content:
    case ActionKind::relay:
    case ActionKind::relay_gradient:
    case ActionKind::reduce_relay:
    case ActionKind::reduce_receive:
    case ActionKind::commit: return TimeKind::wait;
  }
  return TimeKind::wait;
}

TraceEvent trace_event(const IterationPlan& plan, DeviceId device, const Action& action,
                       std::int64_t element_bytes) {
  TraceEvent event;
  event.device = device;
  event.step = plan.step;
  event.epoch_number = plan.epoch_number;
  event.action = action;
  if (action.delivery.valid()) {
    const Delivery& delivery = plan.at(action.delivery);
    event.bytes = delivery.bytes.count();
    if (action.kind != ActionKind::receive_content) return event;
    event.action.microbatch = delivery.destination.microbatch;
    event.action.part = delivery.destination.part;
    return event;
  }
  const Message* message = plan.find(action.message);
  if (!message) return event;
  event.bytes = message->rows * message->width * element_bytes;
  // Of a relay neither end is here.
  if (action.kind == ActionKind::relay || action.kind == ActionKind::relay_gradient) return event;
  const auto& end = at_source(action.kind) ? message->source : message->destination;
  event.action.stage = end.stage;
  event.action.microbatch = end.microbatch;
  event.action.part = end.part;
  return event;
}

std::int64_t trace_now_ns() {
  static const std::int64_t offset = measure_offset();
  return read_clock(CLOCK_MONOTONIC) + offset;
}

std::int64_t thread_cpu_ns() { return read_clock(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace troupe::observe
