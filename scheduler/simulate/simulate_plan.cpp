#include "scheduler/simulate/simulate_plan.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>

#include "scheduler/check/check_plan.hpp"
#include "scheduler/iteration/message_routes.hpp"
#include "scheduler/iteration/sum_traffic.hpp"
#include "scheduler/simulate/check_simulation.hpp"
#include "scheduler/simulate/device_memory.hpp"
#include "scheduler/simulate/host_moves.hpp"
#include "scheduler/simulate/simulation_noise.hpp"
#include "scheduler/simulate/simulation_state.hpp"

namespace troupe::scheduler {

namespace {

/// The run of one simulation. Devices run until they must wait; what arrives wakes them. As no
/// device's time depends on the order in which devices are looked at, no clock is shared.
///
/// Devices that share a list (`ParallelPlan::leads`) do the same at the same time, each with links
/// and memory of its own: the first of them stands for all.
class Simulation {
 public:
  Simulation(const ParallelPlan& plan, const IterationPlan& iteration, const SimulationCosts& costs,
             const SimulationOptions& options)
      : plan_(plan),
        iteration_(iteration),
        costs_(costs),
        options_(options),
        devices_(plan.devices.size()),
        rows_(iteration.messages.size()),
        gradients_(iteration.messages.size()),
        content_(iteration.deliveries.size(), {0, 1, {}}),
        moves_(plan, iteration, costs) {
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      list_count_ += plan.is_lead(DeviceId{d}) ? 1 : 0;
      for (const auto& failure : options.failures)
        if (failure.node == plan.devices[d].node)
          devices_[d].stop_ms = std::min(devices_[d].stop_ms, failure.at_ms);
    }
    for (std::size_t s = 0; s < plan.stages.size(); ++s)
      leads_.push_back(plan.leads_of(StageId{s}));
    for (std::size_t m = 0; m < iteration.messages.size(); ++m) {
      const Message& message = iteration.messages[m];
      for (const bool gradient : {false, true}) {
        Passage& passage = passages(gradient)[m];
        const auto from = gradient ? message.destination.stage : message.source.stage;
        passage.is_relayed = message.relay.valid();
        passage.arrived.left = 1;  // Of the relay.
        passage.sent().left = list_count(from);
      }
    }
    for (std::size_t g = 0; g < plan.groups.size(); ++g)
      groups_.emplace_back(plan, GroupId{g}, costs);
    result_.stage_ms.resize(plan.stages.size());
    place_state();
  }

  Result<SimulatedStep> run() {
    for (std::size_t d = 0; d < devices_.size(); ++d)
      ready_.push_back(static_cast<std::int32_t>(d));
    while (!ready_.empty()) {
      const auto device = ready_.back();
      ready_.pop_back();
      while (advance(device)) {
      }
    }
    return finish();
  }

 private:
  using Device = SimulatedDevice;

  void place_state() {
    if (costs_.activation_bytes)
      for (std::size_t d = 0; d < devices_.size(); ++d)
        devices_[d].memory = DeviceMemory(iteration_.actions[d]);
    if (costs_.state_bytes)
      for (std::size_t s = 0; s < plan_.stages.size(); ++s)
        for (const DeviceId lead : leads_[s])
          devices_[lead.index()].memory.add_state(costs_.state_bytes(StageId{s}));
    if (costs_.standby_bytes)
      for (std::size_t d = 0; d < devices_.size(); ++d)
        devices_[d].memory.add_state(costs_.standby_bytes(DeviceId{d}));
  }

  const std::vector<DeviceId>& leads(StageId stage) const { return leads_[stage.index()]; }
  std::int32_t list_count(StageId stage) const {
    return static_cast<std::int32_t>(leads(stage).size());
  }
  Device& at(std::int32_t device) { return devices_[static_cast<std::size_t>(device)]; }

  /// Runs the next action of a device; false if there is none, or it must wait or has stopped.
  bool advance(std::int32_t index) {
    Device& device = at(index);
    const auto& list = iteration_.actions[DeviceId{index}.index()];
    if (device.next == list.size()) return false;
    const Action& action = list[device.next];
    double begin = device.now_ms;
    if (!inputs_there(index, action, begin)) return false;
    const double end = begin + (meets(action) ? rendezvous_[action].ms : duration(index, action));
    if (end > device.stop_ms) {
      device.now_ms = std::min(std::max(begin, device.now_ms), device.stop_ms);
      return false;
    }
    if (options_.record_timeline)
      result_.events.push_back(
          {DeviceId{index}, static_cast<std::int32_t>(device.next), begin, end});
    device.now_ms = end;
    account(index, action, end - begin);
    ++device.next;
    take_effect(index, action);
    return true;
  }

  /// True if the action can begin; raises `begin` to when. Otherwise the device waits.
  bool inputs_there(std::int32_t index, const Action& action, double& begin) {
    switch (action.kind) {
      case ActionKind::receive:
      case ActionKind::receive_gradient: return has_gathered(passage(action).arrived, index, begin);
      case ActionKind::relay:
      case ActionKind::relay_gradient: return has_gathered(passage(action).at_relay, index, begin);
      case ActionKind::receive_content:
        return has_gathered(content_[action.delivery.index()], index, begin);
      case ActionKind::reduce_partial:
      case ActionKind::reduce:
      case ActionKind::reduce_relay:
      case ActionKind::reduce_receive: return has_sums(action, index, begin);
      case ActionKind::commit: return commit(index, begin);
      default: return !meets(action) || has_met(index, action, begin);
    }
  }

  /// Whether an action is compute of a grid whose devices run several lists.
  bool meets(const Action& action) const {
    return action.microbatch.valid() && !moves_activations(action.kind) &&
           list_count(action.stage) > 1;
  }

  bool has_met(std::int32_t index, const Action& action, double& begin) {
    Device& device = at(index);
    Rendezvous& meeting = rendezvous_[action];
    if (meeting.devices.empty()) meeting.come.left = list_count(action.stage);
    if (device.now_ms <= device.stop_ms && meeting.devices.insert(index).second) {
      meeting.ms = std::max(meeting.ms, duration(index, action));
      gather(meeting.come, device.now_ms);
    }
    return has_gathered(meeting.come, index, begin);
  }

  std::vector<Passage>& passages(bool gradient) { return gradient ? gradients_ : rows_; }
  Passage& passage(const Action& action) {
    return passages(is_of_gradient(action.kind))[action.message.index()];
  }
  static bool has_gathered(Gathering& gathering, std::int32_t index, double& begin) {
    if (gathering.left > 0) return gathering.waiting.push_back(index), false;
    begin = std::max(begin, gathering.ready_ms);
    return true;
  }
  /// An action of a sum begins when all that any device sends in earlier ones is there.
  bool has_sums(const Action& action, std::int32_t index, double& begin) {
    for (const ActionKind kind : kSumActions) {
      if (kind == action.kind) break;
      if (!has_gathered(groups_[action.group.index()].sent(kind), index, begin)) return false;
    }
    return true;
  }
  void gather(Gathering& gathering, double there_ms) {
    gathering.ready_ms = std::max(gathering.ready_ms, there_ms);
    if (--gathering.left > 0) return;
    ready_.insert(ready_.end(), gathering.waiting.begin(), gathering.waiting.end());
    gathering.waiting.clear();
  }
  double bytes_of(std::int64_t elements) const {
    return static_cast<double>(elements) * costs_.bytes_per_element;
  }
  /// When all is there that an action of a sum sends: one transfer per kind of link.
  double spread(Device& device, std::int32_t index, const Action& action) {
    const SimulatedSum& sum = groups_[action.group.index()];
    if (sum.call) return enter_call(*sum.call, costs_, device.now_ms, device.links);
    const LinkElements elements = sum.traffic.sent(DeviceId{index}, action.kind);
    double ms = device.now_ms;
    for (std::size_t link = 0; link < elements.size(); ++link)
      if (elements[link] > 0)
        ms = std::max(ms, send(device, static_cast<LinkClass>(link),
                               elements[link] * costs_.summed_bytes_per_element));
    return ms;
  }

  /// All devices must have come; it takes one message there and one back.
  bool commit(std::int32_t index, double& begin) {
    Device& device = at(index);
    if (!device_came_.empty() && device_came_[static_cast<std::size_t>(index)]) {
      if (came_ < list_count_) return false;
    } else {
      if (device_came_.empty()) device_came_.resize(devices_.size());
      if (device.now_ms > device.stop_ms) return false;
      device_came_[static_cast<std::size_t>(index)] = true;
      commit_ms_ = std::max(commit_ms_, device.now_ms);
      if (++came_ < list_count_) return false;
      for (std::size_t d = 0; d < devices_.size(); ++d)
        if (static_cast<std::int32_t>(d) != index) ready_.push_back(static_cast<std::int32_t>(d));
    }
    const bool several = std::any_of(plan_.devices.begin(), plan_.devices.end(), [&](auto& slot) {
      return slot.node != plan_.devices.front().node;
    });
    begin = std::max(begin, commit_ms_ + (several ? 2 * costs_.network.latency_ms : 0));
    return true;
  }

  double duration(std::int32_t index, const Action& action) {
    if (moves_memory(action.kind)) return moves_.duration_ms(DeviceId{index}, action);
    switch (action.kind) {
      case ActionKind::forward: return task_ms(index, action, TaskKind::forward);
      case ActionKind::backward: return task_ms(index, action, TaskKind::backward);
      case ActionKind::backward_input: return task_ms(index, action, TaskKind::backward_input);
      case ActionKind::backward_weight: return task_ms(index, action, TaskKind::backward_weight);
      case ActionKind::optimizer_step:
        return costs_.update_ms(action, DeviceId{index}) * noise(index);
      case ActionKind::reduce_partial:
      case ActionKind::reduce:
      case ActionKind::reduce_receive: {
        const auto sum = groups_[action.group.index()].traffic.added(DeviceId{index}, action.kind);
        return sum.times * bytes_ms(sum.elements * costs_.summed_bytes_per_element,
                                    costs_.reduce_gigabytes_per_s);
      }
      default: return 0;
    }
  }

  double task_ms(std::int32_t index, const Action& action, TaskKind kind) {
    if (!costs_.task_ms) return 0;
    return costs_.task_ms(action.stage, part_of(action), kind) * noise(index);
  }

  const std::vector<std::int32_t>& part_of(const Action& action) const {
    return samples_of(plan_, iteration_, action.stage, action.microbatch, action.part);
  }

  double noise(std::int32_t index) {
    return noise_factor(options_.noise, options_.seed, index, at(index).next);
  }

  /// When bytes that leave `from` now over a kind of link are there.
  double send(Device& from, LinkClass kind, double bytes) {
    return from.links.send(kind, costs_.link(kind), bytes, from.now_ms);
  }

  void take_effect(std::int32_t index, const Action& action) {
    Device& device = at(index);
    switch (action.kind) {
      case ActionKind::send:
      case ActionKind::send_gradient: return transfer(index, action);
      case ActionKind::relay:
      case ActionKind::relay_gradient: return hand_on(index, action);
      case ActionKind::send_content: return deliver(device, action.delivery);
      case ActionKind::reduce_send:
      case ActionKind::reduce_partial:
      case ActionKind::reduce:
      case ActionKind::reduce_relay:
        return gather(groups_[action.group.index()].sent(action.kind),
                      spread(device, index, action));
      default: return;
    }
  }

  /// Sends what the device's ranks have of a message: to who needs it, or to the relay.
  void transfer(std::int32_t index, const Action& action) {
    Passage& passage = this->passage(action);
    const Message& message = iteration_.messages[action.message.index()];
    const RouteLegs legs = legs_of(plan_, message, is_of_gradient(action.kind));
    // By leader the others of a grid give theirs to the first one, which sends.
    const bool sends = message.route != Route::leader ||
                       plan_.lead_of(plan_.at(action.stage).devices.front()).value == index;
    gather(passage.sent(), pass(index, message, legs, 0, legs.relayed, sends));
    if (!passage.is_relayed) arrive(action, passage);
  }

  /// The relay of a message has its rows and sends them on; it holds them until they have left.
  void hand_on(std::int32_t index, const Action& action) {
    Passage& passage = this->passage(action);
    const Message& message = iteration_.messages[action.message.index()];
    const RouteLegs legs = legs_of(plan_, message, is_of_gradient(action.kind));
    gather(passage.arrived, pass(index, message, legs, legs.relayed, legs.count, true));
    if (costs_.activation_bytes)
      at(index).memory.pass(bytes_of(message.rows * message.width), passage.at_relay.ready_ms,
                            passage.arrived.ready_ms);
    arrive(action, passage);
  }

  double pass(std::int32_t index, const Message& message, const RouteLegs& legs, std::size_t begin,
              std::size_t end, bool sends) {
    Device& device = at(index);
    return pass_legs(legs, begin, end, bytes_of(message.rows * message.width), costs_,
                     device.now_ms, sends ? &device.links : nullptr);
  }

  /// Rows that are there, or a gradient, are held until their part ends.
  void arrive(const Action& action, const Passage& passage) {
    if (passage.arrived.left > 0 || !costs_.activation_bytes) return;
    const Message& message = iteration_.messages[action.message.index()];
    const auto& target = is_of_gradient(action.kind) ? message.source : message.destination;
    const double bytes = bytes_of(message.rows * message.width) / plan_.at(target.stage).grid.cp;
    for (const DeviceId lead : leads(target.stage))
      at(lead.value).memory.arrive(target, bytes, passage.arrived.ready_ms);
  }

  /// Content goes to another node, once for all devices of a stage. It lies where decoded samples
  /// do, which count as no device's memory.
  void deliver(Device& from, DeliveryId id) {
    const auto bytes = static_cast<double>(iteration_.at(id).bytes.count());
    gather(content_[id.index()], send(from, LinkClass::network, bytes));
  }

  /// Compute time and the memory of parts in flight. Moving something is no compute.
  void account(std::int32_t index, const Action& action, double ms) {
    Device& device = at(index);
    if (moves_memory(action.kind))
      return moves_.account(DeviceId{index}, action, device.now_ms - ms, device.now_ms,
                            device.memory);
    if (!action.microbatch.valid() && action.kind != ActionKind::optimizer_step) return;
    device.busy_ms += ms;
    if (action.stage.valid() && &device == &devices_[leads(action.stage).front().index()])
      result_.stage_ms[action.stage.index()] += ms;
    if (!action.microbatch.valid() || !costs_.activation_bytes) return;
    device.memory.compute({action.stage, action.microbatch, action.part},
                          costs_.activation_bytes(action.stage, part_of(action)),
                          device.now_ms - ms, device.now_ms);
  }

  Result<SimulatedStep> finish() {
    double busy_ms = 0;
    const auto sizes = plan_.team_sizes();
    std::vector<MemoryPeaks> peaks;
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      const auto& device = devices_[d];
      result_.completed = result_.completed && device.next == iteration_.actions[d].size();
      result_.step_ms = std::max(result_.step_ms, device.now_ms);
      result_.done.push_back(static_cast<std::int64_t>(device.next));
      const DeviceId lead = plan_.lead_of(DeviceId{d});  // Its own memory peaks as its lead's does.
      peaks.push_back(lead.index() < d ? peaks[lead.index()] : device.memory.peaks());
      result_.peak_memory_bytes.push_back(peaks[d].bytes);
      result_.peak_activation_bytes.push_back(peaks[d].activations);
      result_.peak_host_bytes.push_back(peaks[d].host);
      busy_ms += device.busy_ms * sizes[d];
    }
    for (std::size_t d = 0; options_.failures.empty() && d < devices_.size(); ++d)
      if (devices_[d].next < iteration_.actions[d].size())
        return stands_still(plan_, DeviceId{d}, iteration_.actions[d][devices_[d].next]);
    const double step_ms = result_.step_ms;
    if (step_ms > 0)
      result_.bubble = 1 - busy_ms / (step_ms * static_cast<double>(devices_.size()));
    for (const auto& stage : plan_.stages)
      result_.stage_bubble.push_back(
          step_ms > 0 ? 1 - devices_[plan_.lead_of(stage.devices.front()).index()].busy_ms / step_ms
                      : 0);
    std::stable_sort(result_.events.begin(), result_.events.end(),
                     [](const auto& a, const auto& b) { return a.device < b.device; });
    return std::move(result_);
  }

  const ParallelPlan& plan_;
  const IterationPlan& iteration_;
  const SimulationCosts& costs_;
  const SimulationOptions& options_;
  std::vector<Device> devices_;
  std::vector<std::vector<DeviceId>> leads_;  // Per stage.
  std::vector<Passage> rows_, gradients_;     // Per message.
  std::vector<Gathering> content_;            // Per delivery.
  std::vector<SimulatedSum> groups_;
  std::map<Action, Rendezvous> rendezvous_;
  HostMoves moves_;
  std::vector<bool> device_came_;  // To commit.
  std::size_t list_count_ = 0;     // Devices that run a list of their own.
  std::size_t came_ = 0;
  double commit_ms_ = 0;
  std::vector<std::int32_t> ready_;  // Devices that may be able to go on.
  SimulatedStep result_;
};

}  // namespace

Result<SimulatedStep> simulate(const ParallelPlan& plan, const IterationPlan& iteration,
                               const SimulationCosts& costs, const SimulationOptions& options) {
  if (auto status = check_simulation(plan, iteration, costs, options); !status.ok())
    return status.error();
  return Simulation(plan, iteration, costs, options).run();
}

}  // namespace troupe::scheduler
