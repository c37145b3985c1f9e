#include "scheduler/iteration/phase_windows.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "runtime/vocabulary/index.hpp"

namespace troupe::scheduler {

namespace {

bool is_encoder(const TaskGraph& graph, std::int32_t task) { return graph.stage_of(task).encoder; }

/// Each task behind all that it needs.
std::vector<std::int32_t> sorted_tasks(const TaskGraph& graph) {
  std::vector<std::int32_t> missing(graph.tasks.size()), order;
  for (std::size_t t = 0; t < missing.size(); ++t) {
    missing[t] = graph.needs_count(static_cast<std::int32_t>(t));
    if (missing[t] == 0) order.push_back(static_cast<std::int32_t>(t));
  }
  for (std::size_t next = 0; next < order.size(); ++next)
    for (const Dependency& use : graph.users(order[next]))
      if (--missing[at(use.task)] == 0) order.push_back(use.task);
  return order;
}

class Windows {
 public:
  Windows(const TaskGraph& graph, const std::vector<std::int32_t>& part_of_stage,
          const std::vector<std::int32_t>& widths)
      : graph_(graph),
        part_(part_of_stage),
        widths_(widths),
        order_(sorted_tasks(graph)),
        of_(graph.tasks.size(), 0) {
    for (std::size_t t = 0; t < of_.size(); ++t) {
      const Task& task = graph.tasks[t];
      const bool has_windows = widths[at(part_[at(task.stage)])] > 0;
      if (has_windows && is_encoder(graph, static_cast<std::int32_t>(t))) of_[t] = task.microbatch;
    }
  }

  std::vector<std::int32_t> make() && {
    place_llm();
    cut();
    return std::move(of_);
  }

 private:
  /// Behind what it needs, and behind the microbatches before it.
  void place_llm() {
    for (const std::int32_t task : order_)
      if (!is_encoder(graph_, task)) of_[at(task)] = 0;
    for (const std::int32_t task : order_)
      for (const Dependency& use : graph_.users(task))
        if (!is_encoder(graph_, use.task))
          of_[at(use.task)] = std::max(of_[at(use.task)], of_[at(task)]);
    std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> last;  // By stage, microbatch.
    for (std::size_t t = 0; t < of_.size(); ++t) {
      const Task& task = graph_.tasks[t];
      if (is_encoder(graph_, static_cast<std::int32_t>(t))) continue;
      auto& window = last[{task.stage, task.microbatch}];
      window = std::max(window, of_[t]);
    }
    std::optional<std::pair<std::int32_t, std::int32_t>> before;  // Stage and window.
    for (auto& [place, window] : last) {
      if (before && before->first == place.first) window = std::max(window, before->second);
      before = {place.first, window};
    }
    for (std::size_t t = 0; t < of_.size(); ++t) {
      const Task& task = graph_.tasks[t];
      if (!is_encoder(graph_, static_cast<std::int32_t>(t)))
        of_[t] = last[{task.stage, task.microbatch}];
    }
  }

  /// From places of microbatches to windows.
  void cut() {
    const WindowCuts none(1 + *std::max_element(of_.begin(), of_.end()));
    std::vector<WindowCuts> cuts(widths_.size(), none);  // Per part.
    for (std::size_t t = 0; t < of_.size(); ++t) {
      const auto task = static_cast<std::int32_t>(t);
      for (const Dependency& use : graph_.users(task))
        if (is_encoder(graph_, task) || is_encoder(graph_, use.task)) {
          const auto [first, last] = std::minmax(of_[t], of_[at(use.task)]);
          cuts[at(part_of(t))].join(first, last);
        }
    }
    std::vector<std::vector<std::int32_t>> windows;
    for (std::size_t p = 0; p < cuts.size(); ++p) windows.push_back(cuts[p].windows(widths_[p]));
    for (std::size_t t = 0; t < of_.size(); ++t) of_[t] = windows[at(part_of(t))][at(of_[t])];
  }

  std::int32_t part_of(std::size_t task) const { return part_[at(graph_.tasks[task].stage)]; }

  const TaskGraph& graph_;
  const std::vector<std::int32_t>& part_;
  const std::vector<std::int32_t>& widths_;
  const std::vector<std::int32_t> order_;
  std::vector<std::int32_t> of_;  // Per task: its place, behind `cut` its window.
};

}  // namespace

void WindowCuts::join(std::int32_t first, std::int32_t last) {
  last_[at(first)] = std::max(last_[at(first)], last);
}

std::size_t WindowCuts::end_from(std::size_t place) const {
  std::size_t end = place + 1;
  for (; place < end; ++place) end = std::max(end, at(last_[place]) + 1);
  return end;
}

std::int32_t WindowCuts::least_width() const {
  std::size_t widest = 1;
  for (std::size_t place = 0, end = 0; place < last_.size(); place = end) {
    end = end_from(place);
    widest = std::max(widest, end - place);
  }
  return static_cast<std::int32_t>(widest);
}

std::vector<std::int32_t> WindowCuts::windows(std::int32_t width) const {
  std::vector<std::int32_t> windows(last_.size());
  std::int32_t window = 0;
  std::size_t begin = 0;  // Of the window.
  for (std::size_t place = 0; place < last_.size();) {
    const std::size_t end = end_from(place);
    if (place > begin && end - begin > at(width)) {
      begin = place;
      ++window;
    }
    for (; place < end; ++place) windows[place] = window;
  }
  return windows;
}

std::vector<std::int32_t> phase_windows(const TaskGraph& graph,
                                        const std::vector<std::int32_t>& part_of_stage,
                                        const std::vector<std::int32_t>& widths) {
  if (graph.tasks.empty() || std::ranges::none_of(widths, [](auto width) { return width > 0; }))
    return std::vector<std::int32_t>(graph.tasks.size(), 0);
  return Windows(graph, part_of_stage, widths).make();
}

}  // namespace troupe::scheduler
