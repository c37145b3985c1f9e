#include "engine/iteration/simulated_trace.hpp"

#include <cmath>
#include <map>

namespace troupe::engine {

namespace {

std::int64_t nanoseconds(double ms) { return std::llround(ms * 1e6); }

}  // namespace

std::vector<observe::TraceEvent> simulated_trace(const IterationPlan& iteration,
                                                 const scheduler::SimulatedStep& step,
                                                 std::int64_t element_bytes) {
  std::vector<observe::TraceEvent> events;
  events.reserve(step.events.size());
  std::map<DeviceId, std::int64_t> free_ns;  // When each device ended its last action.
  for (const auto& simulated : step.events) {
    const auto device = simulated.device;
    const auto index = static_cast<std::size_t>(simulated.index);
    if (!device.valid() || device.index() >= iteration.actions.size()) continue;
    const auto& actions = iteration.actions[device.index()];
    if (simulated.index < 0 || index >= actions.size()) continue;
    auto event = observe::trace_event(iteration, device, actions[index], element_bytes);
    auto& free = free_ns[device];
    event.begin_ns = nanoseconds(simulated.begin_ms);
    event.end_ns = nanoseconds(simulated.end_ms);
    if (observe::time_kind(event.action.kind) == observe::TimeKind::wait) event.begin_ns = free;
    free = event.end_ns;
    events.push_back(event);
  }
  return events;
}

}  // namespace troupe::engine
