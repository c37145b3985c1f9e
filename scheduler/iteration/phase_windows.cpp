#include "scheduler/iteration/phase_windows.hpp"

#include <algorithm>
#include <map>
#include <numeric>
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
        parts_(widths.size()),
        order_(sorted_tasks(graph)),
        of_(graph.tasks.size(), 0) {
    for (std::size_t t = 0; t < of_.size(); ++t) {
      const Task& task = graph.tasks[t];
      const std::int32_t width = widths[at(part_[at(task.stage)])];
      if (width > 0 && is_encoder(graph, static_cast<std::int32_t>(t)))
        of_[t] = task.microbatch / width;
    }
  }

  std::vector<std::int32_t> make() && {
    place_llm();
    merge();
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

  /// Makes one window of those from an encoder's backward to the latest llm work that it needs.
  void merge() {
    std::vector<std::int32_t> own(1 + at(*std::max_element(of_.begin(), of_.end())));
    std::iota(own.begin(), own.end(), 0);
    std::vector<std::vector<std::int32_t>> becomes(parts_, own);  // Per part.
    for (std::size_t t = 0; t < of_.size(); ++t)
      for (const Dependency& use : graph_.users(static_cast<std::int32_t>(t))) {
        if (!is_encoder(graph_, use.task)) continue;
        const std::int32_t first = of_[at(use.task)];
        for (std::int32_t w = first + 1; w <= of_[t]; ++w) {
          std::int32_t& window = becomes[at(part_of(t))][at(w)];
          window = std::min(window, first);
        }
      }
    // A window that became another goes where that one went; then numbers without gaps.
    for (auto& numbers : becomes) {
      std::int32_t next = 0;
      for (std::size_t w = 0; w < numbers.size(); ++w)
        numbers[w] = numbers[w] == static_cast<std::int32_t>(w) ? next++ : numbers[at(numbers[w])];
    }
    for (std::size_t t = 0; t < of_.size(); ++t) of_[t] = becomes[at(part_of(t))][at(of_[t])];
  }

  std::int32_t part_of(std::size_t task) const { return part_[at(graph_.tasks[task].stage)]; }

  const TaskGraph& graph_;
  const std::vector<std::int32_t>& part_;
  const std::size_t parts_;
  const std::vector<std::int32_t> order_;
  std::vector<std::int32_t> of_;
};

}  // namespace

std::vector<std::int32_t> phase_windows(const TaskGraph& graph,
                                        const std::vector<std::int32_t>& part_of_stage,
                                        const std::vector<std::int32_t>& widths) {
  if (graph.tasks.empty() || std::ranges::none_of(widths, [](auto width) { return width > 0; }))
    return std::vector<std::int32_t>(graph.tasks.size(), 0);
  return Windows(graph, part_of_stage, widths).make();
}

}  // namespace troupe::scheduler
