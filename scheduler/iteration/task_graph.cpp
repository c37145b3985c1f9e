#include "scheduler/iteration/task_graph.hpp"

#include <algorithm>

namespace troupe::scheduler {

void TaskGraph::finish() {
  first_.assign(tasks.size() + 1, 0);
  needs_count_.assign(tasks.size(), 0);
  for (const auto& dependency : dependencies) {
    ++first_[static_cast<std::size_t>(dependency.needs) + 1];
    ++needs_count_[static_cast<std::size_t>(dependency.task)];
  }
  for (std::size_t t = 0; t < tasks.size(); ++t) first_[t + 1] += first_[t];
  by_needs_.resize(dependencies.size());
  auto next = first_;
  for (const auto& dependency : dependencies)
    by_needs_[next[static_cast<std::size_t>(dependency.needs)]++] = dependency;
}

std::int32_t TaskGraph::device_count() const {
  std::int32_t count = 0;
  for (const auto& stage : stages) {
    count = std::max(count, stage.device + 1);
    for (const auto device : stage.others) count = std::max(count, device + 1);
  }
  return count;
}

}  // namespace troupe::scheduler
