#include "scheduler/cost/stage_times.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <set>

#include "runtime/vocabulary/index.hpp"

namespace troupe::scheduler {

namespace {

constexpr double kMaxTasks = 2e7;

double entry(const std::vector<double>& list, std::int32_t microbatch) {
  return list.size() == 1 ? list.front() : list[at(microbatch)];
}

Error wrong(const PipelineTimes& times, std::size_t stage, std::string message) {
  return Error{
      Errc::invalid_argument, std::move(message), "stage '" + times.stages[stage].name + "'", {}};
}

/// Stages with the sink last; shorter than `stages` where there is a circle.
std::vector<std::int32_t> flow_order(const PipelineTimes& times) {
  std::vector<std::int32_t> waits(times.stages.size());
  for (const auto& stage : times.stages)
    for (const auto next : stage.next) ++waits[at(next)];
  std::vector<std::int32_t> order;
  for (std::size_t s = 0; s < waits.size(); ++s)
    if (waits[s] == 0) order.push_back(static_cast<std::int32_t>(s));
  for (std::size_t i = 0; i < order.size(); ++i)
    for (const auto next : times.stages[at(order[i])].next)
      if (--waits[at(next)] == 0) order.push_back(next);
  return order;
}

Status check_list(const PipelineTimes& times, std::size_t stage, const char* name,
                  const std::vector<double>& list) {
  if (list.size() != 1 && list.size() != at(times.microbatches))
    return wrong(times, stage,
                 std::string(name) + " has " + std::to_string(list.size()) +
                     " entries; expected one, or one for each of the " +
                     std::to_string(times.microbatches) + " microbatches");
  for (const double ms : list)
    if (!(ms >= 0 && std::isfinite(ms)))
      return wrong(times, stage, std::string(name) + " has a time that is negative or not finite");
  return Done{};
}

Status check_parts(const PipelineTimes& times, std::size_t stage) {
  const auto& parts = times.stages[stage].parts;
  if (parts.empty()) return Done{};
  if (parts.size() != 1 && parts.size() != at(times.microbatches))
    return wrong(
        times, stage,
        "parts has " + std::to_string(parts.size()) + " entries; expected one per microbatch");
  for (const auto& shares : parts) {
    double sum = 0;
    for (const double share : shares) {
      if (!(share >= 0 && share <= 1))
        return wrong(times, stage, "a part's share is not in [0, 1]");
      sum += share;
    }
    if (std::abs(sum - 1) > 1e-6)
      return wrong(times, stage,
                   "the shares of a microbatch's parts sum to " + std::to_string(sum) + ", not 1");
  }
  return Done{};
}

Status check_needs(const PipelineTimes& times, std::size_t stage) {
  const auto& needs = times.stages[stage].needs;
  if (!needs) return Done{};
  if (needs->size() != at(times.microbatches))
    return wrong(
        times, stage,
        "needs has " + std::to_string(needs->size()) + " entries; expected one per microbatch");
  for (const auto& list : *needs)
    for (const auto& need : list) {
      if (need.stage < 0 || at(need.stage) >= times.stages.size())
        return wrong(times, stage, "needs names a stage that does not exist");
      const auto& upstream = times.stages[at(need.stage)];
      if (std::find(upstream.next.begin(), upstream.next.end(), static_cast<std::int32_t>(stage)) ==
          upstream.next.end())
        return wrong(times, stage, "needs rows of '" + upstream.name + "', whose next is not it");
      if (need.microbatch < 0 || need.microbatch >= times.microbatches ||
          (need.part >= 0 && at(need.part) >= upstream.part_count(need.microbatch)))
        return wrong(times, stage,
                     "needs part " + std::to_string(std::max(need.part, 0)) + " of microbatch " +
                         std::to_string(need.microbatch) + " of '" + upstream.name +
                         "', which does not exist");
    }
  return Done{};
}

/// Fills a task graph.
class Builder {
 public:
  Builder(const PipelineTimes& times, bool split_all, const std::vector<PartRef>& split)
      : times_(times), split_all_(split_all), split_(split) {}

  TaskGraph build() {
    std::vector<std::int32_t> depths(times_.stages.size(), 1);
    const auto order = flow_order(times_);
    for (auto s = order.rbegin(); s != order.rend(); ++s)
      for (const auto next : times_.stages[at(*s)].next)
        depths[at(*s)] = std::max(depths[at(*s)], depths[at(next)] + 1);
    for (std::size_t s = 0; s < times_.stages.size(); ++s) {
      graph_.stages.push_back({times_.stages[s].device, depths[s], times_.stages[s].encoder});
      parts_.emplace_back();
      for (std::int32_t m = 0; m < times_.microbatches; ++m) add_microbatch(s, m);
    }
    std::vector<std::vector<std::int32_t>> before(times_.stages.size());
    for (std::size_t s = 0; s < times_.stages.size(); ++s)
      for (const auto next : times_.stages[s].next)
        before[at(next)].push_back(static_cast<std::int32_t>(s));
    for (std::size_t s = 0; s < times_.stages.size(); ++s)
      for (std::int32_t m = 0; m < times_.microbatches; ++m) connect(s, m, before[s]);
    graph_.finish();
    return std::move(graph_);
  }

 private:
  struct PartTasks {
    std::int32_t forward, backward;
  };

  void add_microbatch(std::size_t s, std::int32_t m) {
    const auto& stage = times_.stages[s];
    auto& tasks = parts_[s].emplace_back();
    for (std::size_t p = 0; p < stage.part_count(m); ++p) {
      const auto part = static_cast<std::int32_t>(p);
      const double share =
          stage.parts.empty() ? 1 : stage.parts[stage.parts.size() == 1 ? 0 : at(m)][p];
      const auto add = [&](TaskKind kind, double ms) {
        return graph_.add({kind, static_cast<std::int32_t>(s), m, part, ms * share});
      };
      const double input_ms = entry(stage.input_grad_ms, m);
      const double weight_ms = entry(stage.weight_grad_ms, m);
      const PartRef ref{static_cast<std::int32_t>(s), m, part};
      const bool split = split_all_ || std::binary_search(split_.begin(), split_.end(), ref);
      const auto forward = add(TaskKind::forward, entry(stage.forward_ms, m));
      const auto backward = split ? add(TaskKind::backward_input, input_ms)
                                  : add(TaskKind::backward, input_ms + weight_ms);
      graph_.depend(backward, forward);
      if (split) graph_.depend(add(TaskKind::backward_weight, weight_ms), backward);
      tasks.push_back({forward, backward});
    }
  }

  double delay(std::int32_t from, std::int32_t to, bool gradient) const {
    const auto own = times_.links.find({from, to});
    if (own != times_.links.end()) return own->second;
    const auto reverse = times_.links.find({to, from});
    if (gradient && reverse != times_.links.end()) return reverse->second;
    return times_.stages[at(from)].device == times_.stages[at(to)].device ? 0 : times_.link_ms;
  }

  void join(const PartTasks& user, std::int32_t user_stage, const PartTasks& need,
            std::int32_t need_stage) {
    graph_.depend(user.forward, need.forward, delay(need_stage, user_stage, false));
    graph_.depend(need.backward, user.backward, delay(user_stage, need_stage, true));
  }

  void connect(std::size_t s, std::int32_t m, const std::vector<std::int32_t>& before) {
    const auto stage = static_cast<std::int32_t>(s);
    const auto& own = parts_[s][at(m)];
    if (times_.stages[s].needs) {
      auto needs = (*times_.stages[s].needs)[at(m)];
      std::set<PartRef> parts;  // A part named twice is needed once.
      for (const auto& need : needs)
        for (std::size_t p = 0; p < parts_[at(need.stage)][at(need.microbatch)].size(); ++p)
          if (need.part < 0 || at(need.part) == p)
            parts.insert({need.stage, need.microbatch, static_cast<std::int32_t>(p)});
      for (const auto& need : parts)
        for (const auto& user : own)
          join(user, stage, parts_[at(need.stage)][at(need.microbatch)][at(need.part)], need.stage);
      return;
    }
    for (const auto other : before) {
      const auto& theirs = parts_[at(other)][at(m)];
      for (std::size_t p = 0; p < own.size(); ++p)
        for (std::size_t q = 0; q < theirs.size(); ++q)
          if (own.size() != theirs.size() || p == q) join(own[p], stage, theirs[q], other);
    }
  }

  const PipelineTimes& times_;
  const bool split_all_;
  const std::vector<PartRef>& split_;
  TaskGraph graph_;
  std::vector<std::vector<std::vector<PartTasks>>> parts_;  // [stage][microbatch][part].
};

}  // namespace

std::int32_t PipelineTimes::device_count() const {
  std::int32_t count = 0;
  for (const auto& stage : stages) count = std::max(count, stage.device + 1);
  return count;
}

Status check_times(const PipelineTimes& times) {
  if (times.stages.empty())
    return Error{Errc::invalid_argument, "there are no stages", "stages", "give at least one"};
  if (times.microbatches < 1)
    return Error{Errc::invalid_argument, "there are no microbatches", "microbatches",
                 "give at least one"};
  std::set<std::string> names;
  double tasks = 0;
  for (std::size_t s = 0; s < times.stages.size(); ++s) {
    const auto& stage = times.stages[s];
    if (!names.insert(stage.name).second) return wrong(times, s, "two stages have this name");
    for (const auto next : stage.next)
      if (next < 0 || at(next) >= times.stages.size())
        return wrong(times, s, "its next names a stage that does not exist");
    if (auto status = check_list(times, s, "forward_ms", stage.forward_ms); !status.ok())
      return status;
    if (auto status = check_list(times, s, "input_grad_ms", stage.input_grad_ms); !status.ok())
      return status;
    if (auto status = check_list(times, s, "weight_grad_ms", stage.weight_grad_ms); !status.ok())
      return status;
    if (auto status = check_parts(times, s); !status.ok()) return status;
    for (std::int32_t m = 0; m < times.microbatches && tasks <= kMaxTasks; ++m)
      tasks += 3 * static_cast<double>(stage.part_count(m));
  }
  if (tasks > kMaxTasks)
    return Error{Errc::invalid_argument, "more than 20 million tasks", "stages",
                 "use fewer stages, microbatches or parts"};
  for (std::size_t s = 0; s < times.stages.size(); ++s)
    if (auto status = check_needs(times, s); !status.ok()) return status;
  const auto order = flow_order(times);
  if (order.size() < times.stages.size()) {
    const std::set<std::int32_t> placed(order.begin(), order.end());
    for (std::size_t s = 0; s < times.stages.size(); ++s)
      if (!placed.contains(static_cast<std::int32_t>(s)))
        return wrong(times, s, "it lies on or behind a circle of stages");
  }
  return Done{};
}

TaskGraph task_graph(const PipelineTimes& times, bool split_all,
                     const std::vector<PartRef>& split) {
  return Builder(times, split_all, split).build();
}

}  // namespace troupe::scheduler
