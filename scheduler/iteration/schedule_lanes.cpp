#include "scheduler/iteration/schedule_lanes.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <tuple>

#include "runtime/vocabulary/index.hpp"
#include "scheduler/iteration/disjoint_sets.hpp"

namespace troupe::scheduler {

namespace {

void add_lane(std::vector<Lane>& lanes, std::vector<std::int32_t> tasks) {
  if (!tasks.empty()) lanes.push_back({std::move(tasks), 0});
}

/// A lane for the first task of each list, or for all of them.
void add_all(std::vector<Lane>& lanes, const std::vector<MicrobatchTasks>& microbatches,
             std::vector<std::int32_t> MicrobatchTasks::*list, bool first_only) {
  std::vector<std::int32_t> tasks;
  for (const auto& microbatch : microbatches)
    for (std::size_t i = 0; i < (microbatch.*list).size() && (i == 0 || !first_only); ++i)
      tasks.push_back((microbatch.*list)[i]);
  add_lane(lanes, std::move(tasks));
}

/// A lane for the tasks behind the first of each list.
void add_deferred(std::vector<Lane>& lanes, const std::vector<MicrobatchTasks>& microbatches,
                  std::vector<std::int32_t> MicrobatchTasks::*list) {
  std::vector<std::int32_t> deferred;
  for (const auto& microbatch : microbatches)
    for (std::size_t i = 1; i < (microbatch.*list).size(); ++i)
      deferred.push_back((microbatch.*list)[i]);
  add_lane(lanes, std::move(deferred));
}

/// Per stage: whether one of the llm is on a device of it.
std::vector<bool> stages_beside_llm(const TaskGraph& graph) {
  std::set<std::int32_t> devices;  // Of the llm.
  for (const StageSpec& stage : graph.stages) {
    if (stage.encoder) continue;
    devices.insert(stage.device);
    devices.insert(stage.others.begin(), stage.others.end());
  }
  const auto has_llm = [&](std::int32_t device) { return devices.contains(device); };
  std::vector<bool> beside;
  for (const StageSpec& stage : graph.stages)
    beside.push_back(has_llm(stage.device) || std::ranges::any_of(stage.others, has_llm));
  return beside;
}

}  // namespace

std::vector<std::vector<MicrobatchTasks>> tasks_by_stage(const TaskGraph& graph) {
  std::vector<std::vector<std::int32_t>> of_stage(graph.stages.size());
  for (std::size_t t = 0; t < graph.tasks.size(); ++t)
    of_stage[at(graph.tasks[t].stage)].push_back(static_cast<std::int32_t>(t));
  std::vector<std::vector<MicrobatchTasks>> result(graph.stages.size());
  for (std::size_t s = 0; s < of_stage.size(); ++s) {
    auto& tasks = of_stage[s];
    std::sort(tasks.begin(), tasks.end(), [&](std::int32_t a, std::int32_t b) {
      const Task& x = graph.tasks[at(a)];
      const Task& y = graph.tasks[at(b)];
      return std::tie(x.microbatch, x.part, a) < std::tie(y.microbatch, y.part, b);
    });
    std::int32_t microbatch = -1;
    for (const auto index : tasks) {
      const Task& task = graph.tasks[at(index)];
      if (task.microbatch != microbatch) result[s].emplace_back();
      microbatch = task.microbatch;
      auto& cell = result[s].back();
      (task.kind == TaskKind::forward           ? cell.forward
       : task.kind == TaskKind::backward_weight ? cell.weight
                                                : cell.backward)
          .push_back(index);
    }
  }
  return result;
}

std::vector<Lane> one_forward_one_backward(const std::vector<MicrobatchTasks>& microbatches,
                                           std::int32_t warm_up, bool defer) {
  std::vector<std::int32_t> tasks;
  const auto append_backward = [&](const MicrobatchTasks& microbatch) {
    for (std::size_t i = 0; i < microbatch.backward.size() && (i == 0 || !defer); ++i)
      tasks.push_back(microbatch.backward[i]);
  };
  std::size_t oldest = 0;
  std::int32_t ahead = 0;
  for (const auto& microbatch : microbatches) {
    tasks.insert(tasks.end(), microbatch.forward.begin(), microbatch.forward.end());
    if (++ahead < warm_up) continue;
    append_backward(microbatches[oldest++]);
    --ahead;
  }
  for (; oldest < microbatches.size(); ++oldest) append_backward(microbatches[oldest]);
  std::vector<Lane> lanes;
  add_lane(lanes, std::move(tasks));
  if (defer) add_deferred(lanes, microbatches, &MicrobatchTasks::backward);
  add_all(lanes, microbatches, &MicrobatchTasks::weight, defer);
  if (defer) add_deferred(lanes, microbatches, &MicrobatchTasks::weight);
  return lanes;
}

std::vector<Lane> free_lanes(const std::vector<MicrobatchTasks>& microbatches) {
  std::vector<Lane> lanes;
  add_all(lanes, microbatches, &MicrobatchTasks::forward, false);
  for (const auto list : {&MicrobatchTasks::backward, &MicrobatchTasks::weight}) {
    add_all(lanes, microbatches, list, true);
    add_deferred(lanes, microbatches, list);
  }
  return lanes;
}

std::vector<std::vector<MicrobatchTasks>> by_window(
    const std::vector<MicrobatchTasks>& microbatches,
    const std::vector<std::int32_t>& window_of_task) {
  std::vector<std::vector<MicrobatchTasks>> windows;
  for (const MicrobatchTasks& microbatch : microbatches) {
    const auto& first = microbatch.forward.empty() ? microbatch.backward : microbatch.forward;
    const auto window = at(window_of_task[at(first.front())]);
    if (windows.size() <= window) windows.resize(window + 1);
    windows[window].push_back(microbatch);
  }
  return windows;
}

TaskGraph with_phases(const TaskGraph& graph, const std::vector<std::int32_t>& group_of_stage,
                      const std::vector<std::int32_t>& window_of_task) {
  TaskGraph phased = graph;
  const auto groups = 1 + *std::max_element(group_of_stage.begin(), group_of_stage.end());
  const auto windows = window_of_task.empty()
                           ? 1
                           : 1 + *std::max_element(window_of_task.begin(), window_of_task.end());
  // Two barriers per group and window: encoders forward done, llm done.
  std::vector<std::int32_t> encoded, drained;
  const auto first_device = graph.device_count();
  for (std::int32_t g = 0; g < groups * windows; ++g) {
    phased.stages.push_back({first_device + g, 1, false});
    const auto stage = static_cast<std::int32_t>(phased.stages.size()) - 1;
    encoded.push_back(phased.add({TaskKind::forward, stage, 0, 0, 0}));
    drained.push_back(phased.add({TaskKind::forward, stage, 1, 0, 0}));
  }
  const auto beside_llm = stages_beside_llm(graph);
  for (std::size_t t = 0; t < graph.tasks.size(); ++t) {
    const auto index = static_cast<std::int32_t>(t);
    const Task& task = graph.tasks[t];
    const std::int32_t window = window_of_task[t];
    const auto group = at(group_of_stage[at(task.stage)] * windows + window);
    if (!graph.stages[at(task.stage)].encoder) {
      phased.depend(index, encoded[group]);
      phased.depend(drained[group], index);
    } else if (task.kind == TaskKind::forward) {
      phased.depend(encoded[group], index);
      // Where it has a backward that is so by its lane.
      if (window > 0 && beside_llm[at(task.stage)]) phased.depend(index, drained[group - 1]);
    } else {
      phased.depend(index, drained[group]);
    }
  }
  phased.finish();
  return phased;
}

std::vector<std::int32_t> connected_parts(const TaskGraph& graph) {
  DisjointSets stages(graph.stages.size());
  for (const auto& dependency : graph.dependencies)
    stages.join(at(graph.tasks[at(dependency.task)].stage),
                at(graph.tasks[at(dependency.needs)].stage));
  // An llm with text alone needs nothing of its device's encoders, but others wait for them.
  std::map<std::int32_t, std::size_t> first_on;  // By device.
  for (std::size_t s = 0; s < graph.stages.size(); ++s)
    stages.join(first_on.try_emplace(graph.stages[s].device, s).first->second, s);
  std::vector<std::int32_t> number(graph.stages.size(), -1), part(graph.stages.size());
  std::int32_t count = 0;
  for (std::size_t s = 0; s < part.size(); ++s) {
    auto& own = number[stages.root(s)];
    if (own < 0) own = count++;
    part[s] = own;
  }
  return part;
}

}  // namespace troupe::scheduler
