#include "scheduler/schedules.hpp"

#include <algorithm>
#include <cstddef>

#include "runtime/vocabulary/nearest_word.hpp"
#include "scheduler/schedule_lanes.hpp"

namespace troupe::scheduler {

namespace {

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

/// What makes a schedule.
struct Rule {
  const char* name;
  enum class Order { strict, free, phased_by_device, phased_by_pipeline } order;
  bool split_weight = false;
  bool defer = false;  ///< Backwards of deferred parts run apart.
  int eager = 1;       ///< Free: factor on depth. Strict: 0 lets every forward run ahead.
};

constexpr Rule kRules[] = {
    {"1f1b", Rule::Order::strict},
    {"eager-1f1b", Rule::Order::free, false, true, 2},
    {"split-1f1b", Rule::Order::strict, false, true},
    {"zero-bubble", Rule::Order::free, true, true, 1},
    {"eager-zero-bubble", Rule::Order::free, true, true, 2},
    {"gpipe", Rule::Order::strict, false, false, 0},
    {"dip", Rule::Order::phased_by_device},
    {"three-phase", Rule::Order::phased_by_pipeline},
};

const Rule* find_rule(const std::string& name) {
  for (const auto& rule : kRules)
    if (rule.name == name) return &rule;
  return nullptr;
}

Error unknown_schedule(const std::string& name) {
  const std::string nearest = nearest_word(name, schedule_names());
  std::string known;
  for (const auto& other : schedule_names()) known += (known.empty() ? "" : ", ") + other;
  return Error{Errc::invalid_argument, "no schedule is called '" + name + "'; there are " + known,
               "scheduler.schedule",
               nearest.empty() ? "use one of these names" : "did you mean `" + nearest + "`?"};
}

/// Runs one rule on one graph; bounds grow where data demands it and nobody forbids it.
class Maker {
 public:
  Maker(const TaskGraph& graph, const Rule& rule, const std::vector<std::int32_t>& max_in_flight)
      : graph_(graph), rule_(rule), most_(max_in_flight), microbatches_(tasks_by_stage(graph)) {
    most_.resize(graph.stages.size(), 0);
    const auto all = static_cast<std::int32_t>(graph.tasks.size());
    std::int32_t deepest = 1;
    for (const auto& stage : graph.stages) deepest = std::max(deepest, stage.depth);
    for (std::size_t s = 0; s < graph.stages.size(); ++s) {
      const auto& stage = graph.stages[s];
      const bool runs_ahead = rule.eager == 0 || (is_phased() && stage.encoder);
      warm_up_.push_back(bounded(s, runs_ahead ? all : stage.depth));
      if (rule.order != Rule::Order::free) continue;
      // Zero bubble keeps two counts: waiting for the input gradient, and for the weight gradient.
      bounds_.in_flight.push_back(
          bounded(s, rule.eager * (rule.split_weight ? deepest : stage.depth)));
      bounds_.ahead.push_back(rule.split_weight ? rule.eager * stage.depth - (rule.eager - 1) : 0);
    }
    // A strict lane with deferred parts keeps the user's bound only if it is counted.
    if (rule.order == Rule::Order::strict && rule.defer) bounds_.in_flight = most_;
  }

  Result<Timeline> make() {
    const TaskGraph phased = is_phased()
                                 ? with_phases(graph_, rule_.order == Rule::Order::phased_by_device
                                                           ? devices()
                                                           : connected_parts(graph_))
                                 : TaskGraph{};
    const TaskGraph& graph = is_phased() ? phased : graph_;
    for (;;) {
      auto result = list_schedule(graph, lanes(graph), padded_bounds(graph));
      if (result.stuck.empty()) return finish(std::move(result.timeline));
      if (auto status = give_room(graph, result); !status.ok()) return status.error();
    }
  }

 private:
  bool is_phased() const {
    return rule_.order == Rule::Order::phased_by_device ||
           rule_.order == Rule::Order::phased_by_pipeline;
  }
  std::int32_t bounded(std::size_t stage, std::int32_t wish) const {
    return most_[stage] > 0 ? std::min(most_[stage], wish) : wish;
  }
  std::vector<std::int32_t> devices() const {
    std::vector<std::int32_t> devices;
    for (const auto& stage : graph_.stages) devices.push_back(stage.device);
    return devices;
  }
  Bounds padded_bounds(const TaskGraph& graph) const {
    Bounds bounds = bounds_;
    if (!bounds.in_flight.empty()) bounds.in_flight.resize(graph.stages.size());
    if (!bounds.ahead.empty()) bounds.ahead.resize(graph.stages.size());
    return bounds;
  }

  std::vector<Lane> lanes(const TaskGraph& graph) const {
    std::vector<Lane> lanes;
    for (std::size_t s = 0; s < microbatches_.size(); ++s)
      for (auto& lane : rule_.order == Rule::Order::free
                            ? free_lanes(microbatches_[s])
                            : one_forward_one_backward(microbatches_[s], warm_up_[s], rule_.defer))
        lanes.push_back(std::move(lane));
    for (std::size_t t = graph_.tasks.size(); t < graph.tasks.size(); ++t)
      lanes.push_back({{static_cast<std::int32_t>(t)}, 0});  // Barriers.
    return lanes;
  }

  /// Lets stages that stand for want of a forward of their own run one more.
  Status give_room(const TaskGraph& graph, const ListResult& result) {
    bool helped = false;
    std::size_t refused = graph_.stages.size();
    const auto raise = [&](std::vector<std::int32_t>& bounds, std::int32_t stage,
                           std::int32_t needed) {
      if (bounds.empty() || bounds[at(stage)] == 0) return;
      if (most_[at(stage)] > 0 && bounds[at(stage)] >= most_[at(stage)]) {
        refused = at(stage);
      } else if (bounds[at(stage)] < needed) {
        ++bounds[at(stage)];
        helped = true;
      }
    };
    for (const auto index : result.held_back) {
      const auto stage = graph.tasks[at(index)].stage;
      const auto count = static_cast<std::int32_t>(microbatches_[at(stage)].size());
      raise(bounds_.in_flight, stage, count);
      raise(bounds_.ahead, stage, count);
    }
    if (rule_.order != Rule::Order::free)
      for (const auto index : result.stuck) {
        const Task& task = graph.tasks[at(index)];
        if (task.kind != TaskKind::forward)
          raise(warm_up_, task.stage,
                static_cast<std::int32_t>(microbatches_[at(task.stage)].size()));
      }
    if (helped) return Done{};
    if (refused < graph_.stages.size())
      return Error{Errc::infeasible,
                   "stage " + std::to_string(refused) + " may have " +
                       std::to_string(most_[refused]) +
                       " microbatches in flight, but the first backward needs the forward of more",
                   "max_in_flight",
                   "allow " + std::to_string(most_[refused] + 1) + ", or defer fewer samples"};
    return Error{Errc::invalid_argument, "the tasks wait for each other in a circle", "needs",
                 "a microbatch may only need what runs before it"};
  }

  /// Drops the barriers; times are those of the order alone.
  Result<Timeline> finish(Timeline timeline) const {
    if (is_phased()) {
      timeline.order.resize(at(graph_.device_count()));
      timeline = replay(graph_, timeline.order).timeline;
    }
    for (std::size_t s = 0; s < most_.size(); ++s)
      if (most_[s] > 0 && timeline.peak_in_flight[s] > most_[s])
        return Error{Errc::infeasible,
                     std::string(rule_.name) + " has " +
                         std::to_string(timeline.peak_in_flight[s]) +
                         " microbatches in flight on stage " + std::to_string(s) +
                         ", more than the " + std::to_string(most_[s]) + " allowed",
                     "max_in_flight", "allow more, or use 1f1b"};
    return timeline;
  }

  const TaskGraph& graph_;
  const Rule& rule_;
  std::vector<std::int32_t> most_;  // Per stage; 0: no bound.
  std::vector<std::vector<MicrobatchTasks>> microbatches_;
  std::vector<std::int32_t> warm_up_;
  Bounds bounds_;
};

}  // namespace

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const auto& rule : kRules) list.emplace_back(rule.name);
    return list;
  }();
  return names;
}

bool splits_weight_gradient(const std::string& name) {
  const Rule* rule = find_rule(name);
  return rule && rule->split_weight;
}

Result<Timeline> make_schedule(const TaskGraph& graph, const std::string& name,
                               const std::vector<std::int32_t>& max_in_flight) {
  const Rule* rule = find_rule(name);
  if (!rule) return unknown_schedule(name);
  return Maker(graph, *rule, max_in_flight).make();
}

}  // namespace troupe::scheduler
