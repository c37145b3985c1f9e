#include "scheduler/check/check_order.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <map>
#include <optional>

#include "runtime/vocabulary/index.hpp"
#include "scheduler/iteration/wait_graph.hpp"

namespace troupe::scheduler {

namespace {

/// An action as its name says it.
struct NamedAction {
  char letter = 'F';
  PartRef ref;
};

/// A number at the front of `text`, cut off from it.
std::optional<std::int32_t> take_number(std::string_view& text) {
  std::int32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

/// Names of actions to what they mean.
class NameReader {
 public:
  explicit NameReader(const PipelineTimes& times) : times_(times) {
    std::map<std::int32_t, std::int32_t> stages_on;
    for (std::size_t s = 0; s < times.stages.size(); ++s) {
      stage_of_name_[times.stages[s].name] = static_cast<std::int32_t>(s);
      only_stage_[times.stages[s].device] = static_cast<std::int32_t>(s);
      if (++stages_on[times.stages[s].device] > 1) only_stage_[times.stages[s].device] = -1;
    }
  }

  /// Nothing, with the reason, where the name means no action of this device.
  std::optional<NamedAction> read(std::string_view name, std::int32_t device,
                                  std::string& why) const {
    NamedAction action;
    const auto colon = name.rfind(':');
    if (colon == std::string_view::npos) {
      const auto only = only_stage_.find(device);
      if (only == only_stage_.end()) return why = "the device has no stage", std::nullopt;
      if (only->second < 0)
        return why = "the device has several stages: name one, as in `llm.0:F0`", std::nullopt;
      action.ref.stage = only->second;
    } else {
      const auto found = stage_of_name_.find(std::string(name.substr(0, colon)));
      if (found == stage_of_name_.end()) return why = "there is no such stage", std::nullopt;
      action.ref.stage = found->second;
      name.remove_prefix(colon + 1);
    }
    const auto& stage = times_.stages[at(action.ref.stage)];
    if (stage.device != device) return why = "the stage runs on another device", std::nullopt;
    if (name.empty() || std::string_view("FBIW").find(name[0]) == std::string_view::npos)
      return why = "an action is F, B, I or W with a microbatch, as in `B0.1`", std::nullopt;
    action.letter = name[0];
    name.remove_prefix(1);
    const auto microbatch = take_number(name);
    if (!microbatch) return why = "it names no microbatch", std::nullopt;
    action.ref.microbatch = *microbatch;
    if (!name.empty()) {
      const char dot = name[0];
      name.remove_prefix(1);
      const auto part = take_number(name);
      if (dot != '.' || !part || !name.empty()) return why = "it names no part", std::nullopt;
      action.ref.part = *part;
    }
    if (action.ref.microbatch >= times_.microbatches)
      return why = "there is no such microbatch", std::nullopt;
    if (action.ref.part >= 0 && at(action.ref.part) >= stage.part_count(action.ref.microbatch))
      return why = "there is no such part", std::nullopt;
    return action;
  }

 private:
  const PipelineTimes& times_;
  std::map<std::string, std::int32_t, std::less<>> stage_of_name_;
  std::map<std::int32_t, std::int32_t> only_stage_;  // Per device; -1: several.
};

char letter(TaskKind kind) {
  switch (kind) {
    case TaskKind::forward: return 'F';
    case TaskKind::backward: return 'B';
    case TaskKind::backward_input: return 'I';
    case TaskKind::backward_weight: return 'W';
  }
  return '?';
}

/// The check of one order.
class OrderCheck {
 public:
  OrderCheck(const PipelineTimes& times, const std::vector<NamedOrder>& order)
      : times_(times), reader_(times), shared_(is_shared(times)) {
    read(order);
    std::sort(split_.begin(), split_.end());
    graph_ = task_graph(times, false, split_);
    for (std::size_t t = 0; t < graph_.tasks.size(); ++t) {
      const Task& task = graph_.tasks[t];
      tasks_[{letter(task.kind), {task.stage, task.microbatch, task.part}}] =
          static_cast<std::int32_t>(t);
    }
    lists_.resize(at(times.device_count()));
    std::vector<std::int32_t> count(graph_.tasks.size());
    for (const auto& listed : listed_) place(listed, count);
    for (std::size_t t = 0; t < count.size(); ++t)
      if (count[t] == 0)
        report(FaultKind::missing, static_cast<std::int32_t>(t), "it is in no list");
  }

  std::vector<Fault> faults(const std::vector<std::int32_t>& max_in_flight) {
    check_waits();
    check_memory(max_in_flight);
    return std::move(faults_);
  }

 private:
  struct Listed {
    std::int32_t device;
    std::string name;
    NamedAction action;
  };

  void read(const std::vector<NamedOrder>& order) {
    for (const auto& list : order) {
      for (const auto& name : list.actions) {
        std::string why = "there is no device '" + list.device + "'";
        const auto action = list.index < 0 ? std::nullopt : reader_.read(name, list.index, why);
        if (!action) {
          faults_.push_back({FaultKind::unknown, DeviceId{list.index}, name, why});
          continue;
        }
        // Without a part the name means all of them in turn.
        NamedAction each = *action;
        const auto count = static_cast<std::int32_t>(
            times_.stages[at(each.ref.stage)].part_count(each.ref.microbatch));
        for (std::int32_t part = 0; part < count; ++part) {
          if (action->ref.part >= 0 && action->ref.part != part) continue;
          each.ref.part = part;
          listed_.push_back({list.index, name, each});
          if (each.letter == 'I' || each.letter == 'W') split_.push_back(each.ref);
        }
      }
    }
  }

  void place(const Listed& listed, std::vector<std::int32_t>& count) {
    const auto found = tasks_.find({listed.action.letter, listed.action.ref});
    if (found == tasks_.end()) {
      faults_.push_back({FaultKind::unknown, DeviceId{listed.device}, listed.name,
                         "the backward of this part is split into I and W elsewhere"});
      return;
    }
    const auto task = found->second;
    if (++count[at(task)] > 1)
      report(FaultKind::duplicate, task, "it stands in the list more than once");
    else
      lists_[at(listed.device)].push_back(task);
  }

  std::string name(std::int32_t task) const {
    return action_name(times_, graph_.tasks[at(task)], shared_[at(graph_.tasks[at(task)].stage)]);
  }
  void report(FaultKind kind, std::int32_t task, std::string why) {
    faults_.push_back({kind, DeviceId{graph_.device_of(task)}, name(task), std::move(why)});
  }

  void check_waits() {
    WaitGraph waits;
    waits.nodes = static_cast<std::int32_t>(graph_.tasks.size());
    waits.lists = lists_;
    for (const auto& dependency : graph_.dependencies)
      waits.needs.emplace_back(dependency.task, dependency.needs);
    const auto found = find_wait_faults(waits);
    for (const auto& [task, need] : found.misplaced)
      report(FaultKind::dependency, task, "it stands before " + name(need) + ", which it needs");
    for (const auto& [task, need] : found.stuck)
      report(FaultKind::deadlock, task, "it waits for " + name(need) + ", which never comes");
  }

  /// Microbatches between their first forward and their last listed task.
  void check_memory(const std::vector<std::int32_t>& max_in_flight) {
    for (const auto& list : lists_) {
      std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> left, begun;
      const auto cell = [&](std::int32_t task) {
        return std::pair(graph_.tasks[at(task)].stage, graph_.tasks[at(task)].microbatch);
      };
      for (const auto task : list) ++left[cell(task)];
      std::map<std::int32_t, std::int32_t> in_flight;
      std::map<std::int32_t, bool> reported;
      for (const auto task : list) {
        const auto stage = graph_.tasks[at(task)].stage;
        const auto most = max_in_flight[at(stage)];
        if (begun[cell(task)]++ == 0 && ++in_flight[stage] > most && most > 0 && !reported[stage]) {
          reported[stage] = true;
          report(FaultKind::memory, task,
                 std::to_string(in_flight[stage]) + " microbatches in flight, " +
                     std::to_string(most) + " allowed");
        }
        if (--left[cell(task)] == 0) --in_flight[stage];
      }
    }
  }

  const PipelineTimes& times_;
  NameReader reader_;
  const std::vector<bool> shared_;  // Per stage.
  std::vector<Listed> listed_;
  std::vector<PartRef> split_;
  TaskGraph graph_;
  std::map<std::pair<char, PartRef>, std::int32_t> tasks_;
  std::vector<std::vector<std::int32_t>> lists_;
  std::vector<Fault> faults_;
};

}  // namespace

std::string action_name(const PipelineTimes& times, const Task& task, bool with_stage) {
  const auto& stage = times.stages[at(task.stage)];
  std::string name = with_stage ? stage.name + ":" : "";
  name += letter(task.kind) + std::to_string(task.microbatch);
  if (stage.part_count(task.microbatch) > 1) name += "." + std::to_string(task.part);
  return name;
}

std::vector<Fault> check_order(const PipelineTimes& times, const std::vector<NamedOrder>& order,
                               const std::vector<std::int32_t>& max_in_flight) {
  return OrderCheck(times, order).faults(max_in_flight);
}

std::vector<bool> is_shared(const PipelineTimes& times) {
  std::vector<std::int32_t> stages_on(at(times.device_count()));
  for (const auto& stage : times.stages) ++stages_on[at(stage.device)];
  std::vector<bool> shared;
  for (const auto& stage : times.stages) shared.push_back(stages_on[at(stage.device)] > 1);
  return shared;
}

}  // namespace troupe::scheduler
