// The schedule problems of `troupe solve`: layout, schedule, check, simulate.

#include <algorithm>
#include <chrono>
#include <span>

#include "app/solve/choices.hpp"
#include "app/solve/layout_problems.hpp"
#include "app/solve/policy_simulation.hpp"
#include "app/solve/problem.hpp"
#include "app/solve/schedule_input.hpp"
#include "balancer/loads/workload.hpp"
#include "balancer/microbatches/policies.hpp"
#include "balancer/microbatches/portfolio.hpp"
#include "scheduler/check/check_order.hpp"
#include "scheduler/iteration/schedules.hpp"
#include "scheduler/layout/module_pipeline.hpp"

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
  std::vector<std::string> unknown;  // Device of each action that has none, in order.
  for (const auto& [device, actions] : order.items()) {
    const auto found = std::find(devices.begin(), devices.end(), device);
    scheduler::NamedOrder list{device, -1, {}};
    if (found != devices.end()) list.index = static_cast<std::int32_t>(found - devices.begin());
    if (!actions.is_array())
      return Error{
          Errc::invalid_argument, "expected a list of actions", "input.order." + device, {}};
    for (const auto& action : actions)
      list.actions.push_back(action.is_string() ? action.get<std::string>() : action.dump());
    if (list.index < 0) unknown.insert(unknown.end(), list.actions.size(), device);
    named.push_back(std::move(list));
  }
  const auto begin = Clock::now();
  const auto found = scheduler::check_order(read.value().times, named, read.value().max_in_flight);
  const double compute_ms = ms_since(begin);
  Json faults = Json::array();
  auto next_unknown = unknown.begin();
  for (const auto& fault : found)
    faults.push_back(
        {{"kind", scheduler::to_string(fault.kind)},
         {"device", fault.device.valid() ? devices[fault.device.index()] : *next_unknown++},
         {"action", fault.action},
         {"why", fault.why}});
  return Json{{"faults", std::move(faults)}, {"compute_ms", compute_ms}};
}

/// What `simulate` is asked.
struct SimulateInput {
  std::vector<balancer::Workload> samples;
  scheduler::ModulePipeline shape;
  SimulatedMachine machine;
  std::string policy;
  std::string schedule;
  balancer::PolicyOptions options;
};

Result<SimulateInput> read_simulate_input(const Json& input) {
  constexpr double kMaxMs = 1e12;
  constexpr std::int64_t kMaxCount = 100'000;
  Reader in(input, "input");
  in.only({"samples", "encoder_stages", "llm_stages", "microbatches", "policy", "schedule", "seed",
           "freeze", "colocated", "llm_cap", "backward_over_forward", "link_ms", "max_in_flight"});
  SimulateInput result;
  const auto count = in.array("samples").size();
  for (std::size_t s = 0; s < count && in.ok(); ++s) {
    Reader sample = in.element("samples", s);
    const double encoder_ms = sample.number("encoder_ms", 0, kMaxMs);
    result.samples.push_back({encoder_ms, sample.number("llm_ms", 0, kMaxMs)});
    in.absorb(sample);
  }
  if (in.ok() && count == 0) in.fail("samples", "there are no samples", "give at least one");
  result.shape.encoder_stages =
      static_cast<std::int32_t>(in.integer("encoder_stages", 1, kMaxCount));
  result.shape.llm_stages = static_cast<std::int32_t>(in.integer("llm_stages", 1, kMaxCount));
  result.shape.colocated = in.boolean_or("colocated", false);
  result.options.microbatches = in.integer("microbatches", 1, kMaxCount);
  result.options.seed = static_cast<std::uint64_t>(in.integer_or("seed", 0, 0, INT64_MAX));
  if (in.has("llm_cap")) result.options.llm_cap_ms = in.number("llm_cap", 0, kMaxMs);
  constexpr double kMaxRatio = 1000;
  auto& machine = result.machine;
  machine.backward_over_forward =
      in.number_or("backward_over_forward", machine.backward_over_forward, 0, kMaxRatio);
  machine.link_ms = in.number_or("link_ms", 0, 0, kMaxMs);
  if (in.has("max_in_flight"))
    machine.max_in_flight = static_cast<std::int32_t>(in.integer("max_in_flight", 1, kMaxCount));
  result.policy = in.text("policy");
  result.schedule = in.text("schedule");
  if (in.has("freeze"))
    for (const auto& module : in.array("freeze")) {
      if (module == "encoder")
        result.shape.freeze_encoder = true;
      else if (module == "llm")
        result.shape.freeze_llm = true;
      else
        in.fail("freeze", "expected \"encoder\" or \"llm\", found " + module.dump());
    }
  if (!in.ok()) return in.error();
  const double tasks = 3.0 *
                       static_cast<double>(result.shape.encoder_stages + result.shape.llm_stages) *
                       static_cast<double>(result.options.microbatches);
  if (tasks > 2e7)
    return Error{Errc::invalid_argument, "more than 20 million tasks", "input",
                 "use fewer stages or microbatches"};
  return result;
}

/// A plan, and what `auto` has to say about it.
struct NotedPlan {
  balancer::MicrobatchPlan plan;
  Json notes = Json::array();
};

Result<NotedPlan> plan_by(const std::string& policy, std::span<const balancer::Workload> samples,
                          const balancer::PolicyOptions& options) {
  if (policy != "auto") {
    auto plan = balancer::assign_microbatches(policy, samples, options);
    if (!plan.ok()) return std::move(plan).error();
    return NotedPlan{std::move(plan).value()};
  }
  auto choice = balancer::best_of_portfolio(samples, options);
  if (!choice.ok()) return std::move(choice).error();
  auto& [plan, cost, name, evaluations, work, left_out] = choice.value();
  NotedPlan noted{std::move(plan)};
  noted.notes.push_back("from " + name + "; " + std::to_string(evaluations) + " plans costed");
  if (left_out > 0)
    noted.notes.push_back(std::to_string(left_out) +
                          " members of the portfolio left out: too much work for " +
                          std::to_string(samples.size()) + " samples");
  return noted;
}

Result<Json> solve_simulate(const Json& input) {
  auto read = read_simulate_input(input);
  if (!read.ok()) return read.error();
  auto& [samples, shape, machine, policy, schedule, options] = read.value();
  PolicySimulation simulation(samples, shape, schedule, machine);
  simulation.guide(policy, options);
  const auto begin = Clock::now();
  auto planned = plan_by(policy, samples, options);
  if (!planned.ok()) return planned.error();
  const auto& [plan, notes] = planned.value();
  const auto graph = simulation.graph(plan);
  const auto timeline = simulation.run(plan);
  if (!timeline.ok()) return timeline.error();
  const double compute_ms = ms_since(begin);
  const auto& [order, begin_ms, end_ms, step_ms, idle_ms, peaks] = timeline.value();
  double idle = 0;
  for (const double ms : idle_ms) idle += ms;
  const auto times = simulation.times(plan);
  Json peak_in_flight = Json::object();
  for (std::size_t s = 0; s < times.stages.size(); ++s)
    peak_in_flight[times.stages[s].name] = peaks[s];
  const auto encoder = balancer::group_loads(samples, plan.encoder);
  const auto llm = balancer::group_loads(samples, plan.llm);
  return Json{
      {"step_ms", step_ms},
      {"lower_bound_ms", scheduler::lower_bound_ms(graph)},
      {"schedule_bound_ms", scheduler::schedule_bound_ms(graph, schedule)},
      {"bubble", step_ms > 0 ? idle / (step_ms * static_cast<double>(idle_ms.size())) : 0.0},
      {"peak_in_flight", std::move(peak_in_flight)},
      {"encoder_std_ms", balancer::encoder_spread(encoder).std_ms},
      {"llm_std_ms", balancer::llm_spread(llm).std_ms},
      {"microbatches", times.microbatches},
      {"notes", notes},
      {"compute_ms", compute_ms}};
}

/// The input of `simulate`. Policies are those that there are.
std::string simulate_schema() {
  return R"({
  "samples": [{"encoder_ms": ms of the whole encoder, forward, >= 0, "llm_ms": same}...],
  "encoder_stages": integer >= 1, "llm_stages": integer >= 1,
  "microbatches": integer >= 1,
  "policy": )" +
         choices(balancer::policy_names(), 12) + R"(,
  "schedule": as in `schedule`,
  "seed"?: integer >= 0 (default 0),
  "freeze"?: ["encoder", "llm"] (those that are frozen; backwards are shorter by what this saves),
  "colocated"?: bool (llm stage i on the device of encoder stage i; default false),
  "llm_cap"?: ms, bounds every llm microbatch,
  "backward_over_forward"?: number from 0 to 1000 (default 2; half of it for inputs, half for weights),
  "link_ms"?: ms between devices (default 0),
  "max_in_flight"?: microbatches >= 1 that a stage has room for (default: all)
})";
}

}  // namespace

std::vector<Problem> schedule_problems() {
  auto problems = layout_problems();
  const std::vector<Problem> own = {
      {"schedule", "orders the work of a pipeline's devices by a named schedule", schedule_schema(),
       solve_schedule},
      {"check", "finds what is wrong with an order of actions",
       "{\"input\": the input of `schedule`, \"order\": {device: [\"F0\", \"llm.0:B1.0\"...]}}",
       solve_check},
      {"simulate", "simulates a step under a balancing policy and a schedule", simulate_schema(),
       solve_simulate},
  };
  problems.insert(problems.end(), own.begin(), own.end());
  return problems;
}

}  // namespace troupe::app
