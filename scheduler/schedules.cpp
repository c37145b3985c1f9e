#include "scheduler/schedules.hpp"

#include <algorithm>
#include <cstddef>
#include <map>

#include "runtime/vocabulary/nearest_word.hpp"

namespace troupe::scheduler {

namespace {

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

/// Tasks of one microbatch on one stage, parts in order.
struct Cell {
  std::vector<std::int32_t> forward;
  std::vector<std::int32_t> backward;
};

/// Microbatches of one stage that have work there, in order.
using StageCells = std::map<std::int32_t, Cell>;

std::vector<StageCells> cells_of(const TaskGraph& graph) {
  std::vector<StageCells> cells(graph.stages.size());
  for (std::size_t t = 0; t < graph.tasks.size(); ++t) {
    auto& cell = cells[at(graph.tasks[t].stage)][graph.tasks[t].microbatch];
    auto& list = graph.tasks[t].kind == TaskKind::forward ? cell.forward : cell.backward;
    list.push_back(static_cast<std::int32_t>(t));
  }
  const auto by_part = [&](std::int32_t a, std::int32_t b) {
    return graph.tasks[at(a)].part < graph.tasks[at(b)].part;
  };
  for (auto& stage : cells) {
    for (auto& [microbatch, cell] : stage) {
      std::sort(cell.forward.begin(), cell.forward.end(), by_part);
      std::sort(cell.backward.begin(), cell.backward.end(), by_part);
    }
  }
  return cells;
}

void append(std::vector<std::int32_t>& to, const std::vector<std::int32_t>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

/// `warm_up` forwards, then one backward and one forward in turn, then the backwards that are left.
Lane one_forward_one_backward(const StageCells& cells, std::int32_t warm_up) {
  Lane lane;
  auto oldest = cells.begin();
  std::int32_t ahead = 0;
  for (const auto& [microbatch, cell] : cells) {
    append(lane.tasks, cell.forward);
    if (++ahead < warm_up) continue;
    append(lane.tasks, (oldest++)->second.backward);
    --ahead;
  }
  for (; oldest != cells.end(); ++oldest) append(lane.tasks, oldest->second.backward);
  return lane;
}

/// Strict lanes per stage; stages that wait for a forward of their own get more warm-up.
Timeline strict_schedule(const TaskGraph& graph, std::vector<std::int32_t> warm_up) {
  const auto cells = cells_of(graph);
  for (;;) {
    std::vector<Lane> lanes;
    for (std::size_t s = 0; s < cells.size(); ++s)
      lanes.push_back(one_forward_one_backward(cells[s], warm_up[s]));
    auto result = list_schedule(graph, lanes);
    if (result.stuck.empty()) return std::move(result.timeline);
    // All forwards first is always possible, so this ends.
    for (const auto task : result.stuck)
      if (graph.tasks[at(task)].kind != TaskKind::forward)
        ++warm_up[at(graph.tasks[at(task)].stage)];
  }
}

std::vector<std::int32_t> depths(const TaskGraph& graph) {
  std::vector<std::int32_t> depths;
  for (const auto& stage : graph.stages) depths.push_back(stage.depth);
  return depths;
}

}  // namespace

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names = {"1f1b"};
  return names;
}

bool splits_weight_gradient(const std::string& name) {
  return name == "zero-bubble" || name == "eager-zero-bubble";
}

Result<Timeline> make_schedule(const TaskGraph& graph, const std::string& name) {
  if (name == "1f1b") return strict_schedule(graph, depths(graph));
  const std::string nearest = nearest_word(name, schedule_names());
  std::string known;
  for (const auto& other : schedule_names()) known += (known.empty() ? "" : ", ") + other;
  return Error{Errc::invalid_argument, "no schedule is called '" + name + "'; there are " + known,
               "scheduler.schedule",
               nearest.empty() ? "use one of these names" : "did you mean `" + nearest + "`?"};
}

}  // namespace troupe::scheduler
