// The compute of one iteration as a dependency graph: what list scheduler, checker and simulator
// of schedules work on, whether it comes from a `ParallelPlan` or from stage times alone.
//
// Pure values.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe::scheduler {
/// What a task does.
enum class TaskKind : std::uint8_t {
  forward,
  backward,         ///< Input and weight gradients together.
  backward_input,   ///< Input gradients alone.
  backward_weight,  ///< Weight gradients alone, after `backward_input` of the same part.
};

/// One part of one microbatch on one stage.
struct Task {
  TaskKind kind = TaskKind::forward;
  std::int32_t stage = 0;
  std::int32_t microbatch = 0;
  std::int32_t part = 0;
  double ms = 0;

  friend auto operator<=>(const Task&, const Task&) = default;
};

/// `task` needs `needs`, and what that makes arrives `delay_ms` after its end.
struct Dependency {
  std::int32_t task = 0;
  std::int32_t needs = 0;
  double delay_ms = 0;
};

/// Where a stage runs and how far it is from the end of the pipeline.
struct StageSpec {
  std::int32_t device = 0;
  std::int32_t depth = 1;  ///< Stages on the longest path from here to the sink, both included.
  bool encoder = false;    ///< On the encoder side of the boundary.
  std::vector<std::int32_t> others = {};  ///< Further devices that each of its tasks takes.
};

/// Tasks with their dependencies. Add everything, then `finish()` once.
class TaskGraph {
 public:
  std::vector<StageSpec> stages;
  std::vector<Task> tasks;
  std::vector<Dependency> dependencies;

  std::int32_t add(Task task) {
    tasks.push_back(task);
    return static_cast<std::int32_t>(tasks.size()) - 1;
  }  ///< Its index.
  void depend(std::int32_t task, std::int32_t needs, double delay_ms = 0) {
    dependencies.push_back({task, needs, delay_ms});
  }  ///< As `Dependency`; the tasks may be added later.
  /// Builds the indices behind `users` and `needs_count`. REQUIRES: task indices exist.
  void finish();

  const StageSpec& stage_of(std::int32_t task) const {
    return stages[static_cast<std::size_t>(tasks[static_cast<std::size_t>(task)].stage)];
  }  ///< Where a task runs.
  std::int32_t device_of(std::int32_t task) const { return stage_of(task).device; }  ///< The first.
  std::int32_t device_count() const;  ///< One more than the highest.
  /// Dependencies on `task`, in the order they were added.
  std::span<const Dependency> users(std::int32_t task) const {
    const auto t = static_cast<std::size_t>(task);
    return std::span(by_needs_).subspan(first_[t], first_[t + 1] - first_[t]);
  }
  /// Dependencies of `task`.
  std::int32_t needs_count(std::int32_t task) const {
    return needs_count_[static_cast<std::size_t>(task)];
  }

 private:
  std::vector<Dependency> by_needs_;
  std::vector<std::size_t> first_;
  std::vector<std::int32_t> needs_count_;
};

/// Order of a device: indices of its tasks.
using DeviceOrders = std::vector<std::vector<std::int32_t>>;

}  // namespace troupe::scheduler
