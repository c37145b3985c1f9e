// The schedule problems of `troupe solve`: layout, schedule, check, simulate.

#include <algorithm>
#include <chrono>

#include "app/solve/problem.hpp"
#include "app/solve/schedule_input.hpp"
#include "scheduler/check_order.hpp"
#include "scheduler/schedules.hpp"

namespace troupe::app {

namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

Result<Json> solve_schedule(const Json& input) {
  auto read = read_schedule_input(input, "input", true);
  if (!read.ok()) return read.error();
  const auto& [times, devices, schedule, max_in_flight] = read.value();
  const auto begin = Clock::now();
  const auto graph = scheduler::task_graph(times, scheduler::splits_weight_gradient(schedule));
  auto made = scheduler::make_schedule(graph, schedule, max_in_flight);
  if (!made.ok()) return made.error();
  const double compute_ms = ms_since(begin);
  const auto& timeline = made.value();
  const auto shared = scheduler::is_shared(times);
  Json order = Json::object();
  Json idle = Json::object();
  for (std::size_t d = 0; d < devices.size(); ++d) {
    Json list = Json::array();
    for (const auto index : timeline.order[d]) {
      const auto& task = graph.tasks[static_cast<std::size_t>(index)];
      list.push_back(
          scheduler::action_name(times, task, shared[static_cast<std::size_t>(task.stage)]));
    }
    order[devices[d]] = std::move(list);
    idle[devices[d]] = timeline.idle_ms[d];
  }
  Json peaks = Json::object();
  for (std::size_t s = 0; s < times.stages.size(); ++s)
    peaks[times.stages[s].name] = timeline.peak_in_flight[s];
  return Json{{"order", std::move(order)},
              {"step_ms", timeline.step_ms},
              {"idle_ms", std::move(idle)},
              {"peak_in_flight", std::move(peaks)},
              {"compute_ms", compute_ms}};
}

Result<Json> solve_check(const Json& input) {
  Reader in(input, "input");
  in.only({"input", "order"});
  const Json& order = in.object("order");
  const Json& described = in.object("input");
  if (!in.ok()) return in.error();
  auto read = read_schedule_input(described, "input.input", false);
  if (!read.ok()) return read.error();
  const auto& devices = read.value().devices;
  std::vector<scheduler::NamedOrder> named;
  for (const auto& [device, actions] : order.items()) {
    const auto found = std::find(devices.begin(), devices.end(), device);
    scheduler::NamedOrder list{device, -1, {}};
    if (found != devices.end()) list.index = static_cast<std::int32_t>(found - devices.begin());
    if (!actions.is_array())
      return Error{
          Errc::invalid_argument, "expected a list of actions", "input.order." + device, {}};
    for (const auto& action : actions)
      list.actions.push_back(action.is_string() ? action.get<std::string>() : action.dump());
    named.push_back(std::move(list));
  }
  const auto begin = Clock::now();
  const auto found = scheduler::check_order(read.value().times, named, read.value().max_in_flight);
  const double compute_ms = ms_since(begin);
  Json faults = Json::array();
  for (const auto& fault : found)
    faults.push_back(
        {{"kind", scheduler::to_string(fault.kind)},
         {"device", fault.device.valid() ? Json(devices[fault.device.index()]) : Json()},
         {"action", fault.action},
         {"why", fault.why}});
  return Json{{"faults", std::move(faults)}, {"compute_ms", compute_ms}};
}

}  // namespace

std::vector<Problem> schedule_problems() {
  return {
      {"schedule", "orders the work of a pipeline's devices by a named schedule", kScheduleSchema,
       solve_schedule},
      {"check", "finds what is wrong with an order of actions",
       "{\"input\": the input of `schedule`, \"order\": {device: [\"F0\", \"llm.0:B1.0\"...]}}",
       solve_check},
  };
}

}  // namespace troupe::app
