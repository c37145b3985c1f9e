#include "scheduler/iteration/list_schedule.hpp"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <map>
#include <queue>
#include <tuple>

#include "runtime/vocabulary/index.hpp"

namespace troupe::scheduler {

namespace {

/// Dense numbers for (stage, microbatch) pairs.
class Cells {
 public:
  explicit Cells(const TaskGraph& graph) : first_(graph.stages.size() + 1) {
    for (const auto& task : graph.tasks)
      first_[at(task.stage) + 1] = std::max(first_[at(task.stage) + 1], at(task.microbatch) + 1);
    for (std::size_t s = 1; s < first_.size(); ++s) first_[s] += first_[s - 1];
  }
  std::size_t of(const Task& task) const { return first_[at(task.stage)] + at(task.microbatch); }
  std::size_t count() const { return first_.back(); }

 private:
  std::vector<std::size_t> first_;
};

/// Counts the microbatches in flight per stage while tasks begin and end. With `ahead_only` weight
/// gradients do not count.
class InFlight {
 public:
  explicit InFlight(const TaskGraph& graph, bool ahead_only = false)
      : ahead_only_(ahead_only),
        cells_(graph),
        left_(cells_.count()),
        begun_(cells_.count()),
        now_(graph.stages.size()),
        peak_(graph.stages.size()) {
    for (const auto& task : graph.tasks)
      if (counts(task)) ++left_[cells_.of(task)];
  }
  /// True if `task` may begin without more than `most` (0: any number) in flight.
  bool has_room(const Task& task, const std::vector<std::int32_t>& most) const {
    if (most.empty() || most[at(task.stage)] <= 0 || begun_[cells_.of(task)]) return true;
    return now_[at(task.stage)] < most[at(task.stage)];
  }
  void begin(const Task& task) {
    if (!counts(task)) return;
    const auto cell = cells_.of(task);
    if (begun_[cell]) return;
    begun_[cell] = true;
    peak_[at(task.stage)] = std::max(peak_[at(task.stage)], ++now_[at(task.stage)]);
  }
  void end(const Task& task) {
    if (counts(task) && --left_[cells_.of(task)] == 0) --now_[at(task.stage)];
  }
  const std::vector<std::int32_t>& peaks() const { return peak_; }

 private:
  bool counts(const Task& task) const {
    return !ahead_only_ || task.kind != TaskKind::backward_weight;
  }

  bool ahead_only_;
  Cells cells_;
  std::vector<std::int32_t> left_;
  std::vector<bool> begun_;
  std::vector<std::int32_t> now_;
  std::vector<std::int32_t> peak_;
};

/// The run of one list schedule.
class Machine {
 public:
  Machine(const TaskGraph& graph, const std::vector<Lane>& lanes, const Bounds& bounds)
      : graph_(graph),
        lanes_(lanes),
        bounds_(bounds),
        in_flight_(graph),
        ahead_(graph, true),
        lanes_of_(at(graph.device_count())),
        position_(lanes.size()),
        needs_(graph.tasks.size()),
        ready_ms_(graph.tasks.size()),
        busy_(lanes_of_.size()) {
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) add_lane(lane);
    for (std::size_t task = 0; task < needs_.size(); ++task)
      needs_[task] = graph.needs_count(static_cast<std::int32_t>(task));
    result_.timeline.order.resize(lanes_of_.size());
    result_.timeline.begin_ms.resize(graph.tasks.size());
    result_.timeline.end_ms.resize(graph.tasks.size());
  }

  ListResult run() {
    for (std::size_t device = 0; device < lanes_of_.size(); ++device) dispatch(device, 0);
    std::vector<std::size_t> touched;
    while (!events_.empty()) {
      const double now = events_.top().ms;
      touched.clear();
      // Everything that happens at one instant happens before any device decides.
      while (!events_.empty() && events_.top().ms == now) {
        const Event event = events_.top();
        events_.pop();
        touched.push_back(event.device);
        if (event.task < 0) continue;
        end(event.task, now);
        for (const auto other : graph_.stage_of(event.task).others) touched.push_back(at(other));
      }
      std::sort(touched.begin(), touched.end());
      touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
      for (const auto device : touched) dispatch(device, now);
    }
    return finish();
  }

 private:
  void add_lane(std::size_t index) {
    const Lane& lane = lanes_[index];
    if (lane.tasks.empty()) return;
    const StageSpec& stage = graph_.stage_of(lane.tasks.front());
    lanes_of_[at(lane.device >= 0 ? lane.device : stage.device)].push_back(index);
    if (lane.device < 0)
      for (const auto other : stage.others) lanes_of_[at(other)].push_back(index);
    for (const auto task : lane.tasks)
      if (!graph_.stage_of(task).others.empty()) lanes_with_[task].push_back(index);
  }

  /// Whether all devices of a task are free and have come to it.
  bool has_met(std::int32_t index) const {
    const StageSpec& stage = graph_.stage_of(index);
    if (stage.others.empty()) return true;
    const auto is_busy = [&](std::int32_t device) { return busy_[at(device)]; };
    if (is_busy(stage.device) || std::ranges::any_of(stage.others, is_busy)) return false;
    return std::ranges::all_of(lanes_with_.at(index), [&](std::size_t lane) {
      return lanes_[lane].tasks[position_[lane]] == index;
    });
  }

  /// The end of a task, or (task -1) rows that arrived.
  struct Event {
    double ms;
    std::size_t device;
    std::int32_t task;
    bool operator>(const Event& other) const {
      return std::tie(ms, device, task) > std::tie(other.ms, other.device, other.task);
    }
  };

  bool may_begin(const Task& task) const {
    return task.kind != TaskKind::forward ||
           (in_flight_.has_room(task, bounds_.in_flight) && ahead_.has_room(task, bounds_.ahead));
  }

  auto preference(std::size_t lane, std::int32_t index) const {
    const Task& task = graph_.tasks[at(index)];
    const int kind = task.kind == TaskKind::forward           ? 1
                     : task.kind == TaskKind::backward_weight ? 2
                                                              : 0;
    return std::tuple(lanes_[lane].priority, kind, task.microbatch, task.part,
                      graph_.stages[at(task.stage)].depth, task.stage);
  }

  void dispatch(std::size_t device, double now) {
    if (busy_[device]) return;
    std::size_t chosen = lanes_.size();
    for (const auto lane : lanes_of_[device]) {
      if (position_[lane] == lanes_[lane].tasks.size()) continue;
      const auto index = lanes_[lane].tasks[position_[lane]];
      if (needs_[at(index)] > 0 || ready_ms_[at(index)] > now) continue;
      if (!may_begin(graph_.tasks[at(index)]) || !has_met(index)) continue;
      if (chosen == lanes_.size() ||
          preference(lane, index) < preference(chosen, lanes_[chosen].tasks[position_[chosen]]))
        chosen = lane;
    }
    if (chosen == lanes_.size()) return;
    const auto index = lanes_[chosen].tasks[position_[chosen]];
    const StageSpec& stage = graph_.stage_of(index);
    if (stage.others.empty()) {
      ++position_[chosen];
    } else {
      for (const auto lane : lanes_with_.at(index)) ++position_[lane];
    }
    take(at(stage.device), index);
    for (const auto other : stage.others) take(at(other), index);
    in_flight_.begin(graph_.tasks[at(index)]);
    ahead_.begin(graph_.tasks[at(index)]);
    result_.timeline.begin_ms[at(index)] = now;
    events_.push({now + graph_.tasks[at(index)].ms, at(stage.device), index});
  }

  void take(std::size_t device, std::int32_t index) {
    busy_[device] = true;
    result_.timeline.order[device].push_back(index);
  }

  void end(std::int32_t index, double now) {
    const Task& task = graph_.tasks[at(index)];
    busy_[at(graph_.device_of(index))] = false;
    for (const auto other : graph_.stage_of(index).others) busy_[at(other)] = false;
    in_flight_.end(task);
    ahead_.end(task);
    result_.timeline.end_ms[at(index)] = now;
    for (const auto& user : graph_.users(index)) {
      auto& ready_ms = ready_ms_[at(user.task)];
      ready_ms = std::max(ready_ms, now + user.delay_ms);
      if (--needs_[at(user.task)] == 0)
        events_.push({ready_ms, at(graph_.device_of(user.task)), -1});
    }
  }

  ListResult finish() {
    auto& timeline = result_.timeline;
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
      if (position_[lane] == lanes_[lane].tasks.size()) continue;
      const auto head = lanes_[lane].tasks[position_[lane]];
      result_.stuck.push_back(head);
      if (needs_[at(head)] == 0 && !may_begin(graph_.tasks[at(head)]))
        result_.held_back.push_back(head);
    }
    for (const double ms : timeline.end_ms) timeline.step_ms = std::max(timeline.step_ms, ms);
    timeline.idle_ms.assign(lanes_of_.size(), timeline.step_ms);
    for (std::size_t task = 0; task < graph_.tasks.size(); ++task) {
      const StageSpec& stage = graph_.stage_of(static_cast<std::int32_t>(task));
      timeline.idle_ms[at(stage.device)] -= graph_.tasks[task].ms;
      for (const auto other : stage.others) timeline.idle_ms[at(other)] -= graph_.tasks[task].ms;
    }
    timeline.peak_in_flight = in_flight_.peaks();
    return std::move(result_);
  }

  const TaskGraph& graph_;
  const std::vector<Lane>& lanes_;
  const Bounds& bounds_;
  InFlight in_flight_;
  InFlight ahead_;
  std::vector<std::vector<std::size_t>> lanes_of_;               // Per device.
  std::map<std::int32_t, std::vector<std::size_t>> lanes_with_;  // Of tasks of several devices.
  std::vector<std::size_t> position_;                            // Per lane.
  std::vector<std::int32_t> needs_;  // Per task: dependencies that are left.
  std::vector<double> ready_ms_;     // Per task: when the last one arrives.
  std::vector<bool> busy_;           // Per device.
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  ListResult result_;
};

}  // namespace

ListResult list_schedule(const TaskGraph& graph, const std::vector<Lane>& lanes,
                         const Bounds& bounds) {
  assert(bounds.in_flight.empty() || bounds.in_flight.size() == graph.stages.size());
  assert(bounds.ahead.empty() || bounds.ahead.size() == graph.stages.size());
  return Machine(graph, lanes, bounds).run();
}

ListResult replay(const TaskGraph& graph, const DeviceOrders& order) {
  std::vector<Lane> lanes;
  for (std::size_t d = 0; d < order.size(); ++d)
    lanes.push_back({order[d], 0, static_cast<std::int32_t>(d)});
  return list_schedule(graph, lanes);
}

std::vector<std::int32_t> in_flight_peaks(const TaskGraph& graph, const DeviceOrders& order) {
  InFlight in_flight(graph);
  for (std::size_t device = 0; device < order.size(); ++device)
    for (const auto index : order[device]) {
      if (at(graph.device_of(index)) != device) continue;  // Counted on the first of its devices.
      in_flight.begin(graph.tasks[at(index)]);
      in_flight.end(graph.tasks[at(index)]);
    }
  return in_flight.peaks();
}

}  // namespace troupe::scheduler
