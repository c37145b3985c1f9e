// A pipeline schedule: all forwards of a few microbatches, then all their backwards, then the next
// few. As simple as GPipe, but what a stage keeps does not grow with the batch.

#include <algorithm>
#include <numeric>
#include <tuple>

#include "runtime/plugins/entry_point.hpp"
#include "runtime/schedules/registry.hpp"

namespace {

using namespace troupe;
using namespace troupe::schedules;

constexpr std::int32_t kWindow = 3;  // Microbatches; fewer where `scheduler.max_in_flight` says so.

Result<DeviceOrders> order(const TaskGraph& graph, const std::vector<std::int32_t>& max_in_flight) {
  std::int32_t window = kWindow;
  for (const auto most : max_in_flight)
    if (most > 0) window = std::min(window, most);

  // What goes first: forwards from the begin of the pipeline on, backwards from its end.
  const auto place = [&](std::int32_t t) {
    const Task& task = graph.tasks[std::size_t(t)];
    const bool is_backward = task.kind != TaskKind::forward;
    const auto depth = graph.stage_of(t).depth;
    return std::tuple(task.microbatch / window, is_backward, task.microbatch,
                      is_backward ? depth : -depth, task.stage, task.part);
  };
  std::vector<std::int32_t> tasks(graph.tasks.size());
  std::iota(tasks.begin(), tasks.end(), 0);
  std::ranges::sort(tasks, {}, place);
  // A task whose rows or gradients come from a later window stands behind them.
  return order_devices(graph, tasks);
}

Status register_all() { return register_schedule({.name = "windows", .order = order}); }

}  // namespace

TROUPE_PLUGIN(register_all)
