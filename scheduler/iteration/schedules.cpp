#include "scheduler/iteration/schedules.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/vocabulary/index.hpp"
#include "runtime/vocabulary/nearest_word.hpp"
#include "scheduler/iteration/own_schedule.hpp"
#include "scheduler/iteration/phase_windows.hpp"
#include "scheduler/iteration/schedule_lanes.hpp"

namespace troupe::scheduler {

namespace {

/// How a stage's tasks are put into lanes.
enum class Lanes {
  strict,  ///< Forwards and backwards in one lane: warm-up, then in turn.
  free,    ///< Whatever is ready, backwards first.
};

/// What makes a schedule. Where a rule allows several lane forms and warm-ups, the one that takes
/// the shortest time is kept; all of them hold the bounds.
struct Rule {
  const char* name;
  bool split_weight = false;
  bool defer = false;     ///< Backwards of deferred parts run apart.
  int eager = 1;          ///< Factor on depth: microbatches in flight; 0: no bound.
  bool search = false;    ///< Try every lane form; otherwise strict with a warm-up of depth.
  bool all_room = false;  ///< Try also as many in flight as the user's bound allows.
  enum class Phases { none, by_device, by_pipeline } phases = Phases::none;
};

constexpr Rule kRules[] = {
    {.name = "1f1b"},
    {.name = "eager-1f1b", .defer = true, .eager = 2, .search = true, .all_room = true},
    {.name = "split-1f1b", .defer = true},
    {.name = "zero-bubble", .split_weight = true, .defer = true, .search = true},
    {.name = "eager-zero-bubble", .split_weight = true, .defer = true, .eager = 2, .search = true},
    {.name = "gpipe", .eager = 0},
    {.name = "dip", .phases = Rule::Phases::by_device},
    {.name = "three-phase", .phases = Rule::Phases::by_pipeline},
};

const Rule* find_rule(const std::string& name) {
  for (const auto& rule : kRules)
    if (rule.name == name) return &rule;
  return nullptr;
}

Error unknown_schedule(const std::string& name) {
  std::string known;
  for (const auto& other : schedule_names()) known += (known.empty() ? "" : ", ") + other;
  return Error{Errc::invalid_argument, "no schedule is called '" + name + "'; there are " + known,
               "scheduler.schedule", name_fix(name, schedule_names())};
}

/// One way to run a rule.
struct Variant {
  Lanes lanes = Lanes::strict;
  bool long_warm_up = false;  ///< As many forwards as the bound allows, not only depth.
  bool all_room = false;      ///< The bound is the user's, where there is one, not the rule's.
};

/// Rows from one stage to another: places of their microbatches in the orders of both, ascending.
using Places = std::vector<std::pair<std::int32_t, std::int32_t>>;

/// How many microbatches the stage behind may take forward before the first of them goes back,
/// where the one before has `held` under way at most: as many, or more where others come in
/// between. In strict turns of both.
std::int32_t reach(const Places& rows, std::int32_t held) {
  std::int32_t least = std::numeric_limits<std::int32_t>::max(), last = -1;
  auto back = rows.begin();
  for (const auto& [before, behind] : rows) {
    for (; back->first + held <= before; ++back) last = std::max(last, back->second);
    if (last >= 0) least = std::min(least, behind - last);
  }
  return std::max(held, least);
}

/// Runs one variant of a rule; bounds grow where data demands it and nobody forbids it.
class Maker {
 public:
  Maker(const TaskGraph& graph, const Rule& rule, const std::vector<std::int32_t>& max_in_flight,
        const Variant& variant, const RefuseBound& refuse)
      : graph_(graph),
        rule_(rule),
        variant_(variant),
        most_(max_in_flight),
        refuse_(refuse),
        microbatches_(tasks_by_stage(graph)) {
    most_.resize(graph.stages.size(), 0);
    const auto all = static_cast<std::int32_t>(graph.tasks.size());
    std::int32_t deepest = 1;
    for (const auto& stage : graph.stages) deepest = std::max(deepest, stage.depth);
    for (std::size_t s = 0; s < graph.stages.size(); ++s) {
      const auto& stage = graph.stages[s];
      // Zero bubble counts a microbatch until its weight gradient, and gives every stage the peak
      // of the first one.
      const auto in_flight = variant.all_room && most_[s] > 0
                                 ? most_[s]
                                 : rule.eager * (rule.split_weight ? deepest : stage.depth);
      wishes_.push_back(runs_ahead(s) ? all : variant.long_warm_up ? in_flight : stage.depth);
      warm_up_.push_back(bounded(s, wishes_.back()));
      if (rule.search) bounds_.in_flight.push_back(bounded(s, in_flight));
    }
    taper_warm_ups();
    // A lane with deferred parts keeps the user's bound only if it is counted.
    if (!rule.search && rule.defer) bounds_.in_flight = most_;
    if (!is_phased()) return;
    parts_ = connected_parts(graph);
    windows_ = windows();
  }

  Result<Timeline> make() {
    const TaskGraph phased =
        is_phased()
            ? with_phases(graph_, rule_.phases == Rule::Phases::by_device ? devices() : parts_,
                          windows_)
            : TaskGraph{};
    const TaskGraph& graph = is_phased() ? phased : graph_;
    for (;;) {
      Bounds bounds = bounds_;
      if (!bounds.in_flight.empty()) bounds.in_flight.resize(graph.stages.size());
      auto result = list_schedule(graph, lanes(graph), bounds);
      if (result.stuck.empty()) return finish(std::move(result.timeline));
      if (auto status = give_room(graph, result); !status.ok()) return status.error();
    }
  }

 private:
  bool is_phased() const { return rule_.phases != Rule::Phases::none; }
  /// All its forwards may come before its backwards.
  bool runs_ahead(std::size_t stage) const {
    return rule_.eager == 0 || (is_phased() && graph_.stages[stage].encoder);
  }

  /// Else no microbatch of it waits for anything once it is through, as of a frozen encoder.
  bool goes_back(std::size_t stage) const {
    return std::ranges::any_of(microbatches_[stage], [](const MicrobatchTasks& microbatch) {
      return !microbatch.backward.empty();
    });
  }

  /// A stage may warm up so much of what it wishes.
  struct Part {
    std::int64_t allowed = 1, wished = 1;

    bool operator<(const Part& other) const {
      return allowed * other.wished < other.allowed * wished;
    }
    std::int32_t of(std::int32_t wish) const {
      return static_cast<std::int32_t>((allowed * wish + wished - 1) / wished);
    }
  };

  /// Whether an encoder that warms up as it wishes may be in the way of a stage behind it which
  /// wishes so much: of several that share a replica of the llm the depths may be less than its.
  bool may_hold_back(std::size_t stage, std::int32_t wish) const {
    return most_[stage] > 0 && most_[stage] < wish && graph_.stages[stage].encoder &&
           !runs_ahead(stage) && goes_back(stage);
  }

  /// Where a bound holds the warm-up of a stage back, those behind it warm up as large a part of
  /// what they wish. As far as it, each of them would keep a backward waiting for a forward that
  /// the stage of the bound begins only behind that backward: microbatches would go through all of
  /// them one by one.
  void taper_warm_ups() {
    std::vector<Part> parts;
    for (std::size_t s = 0; s < wishes_.size(); ++s)
      parts.push_back(runs_ahead(s) || !goes_back(s) ? Part{} : Part{warm_up_[s], wishes_[s]});
    std::int32_t furthest = 0;
    for (const std::int32_t wish : wishes_) furthest = std::max(furthest, wish);
    bool is_held_back = false;
    for (std::size_t s = 0; s < wishes_.size(); ++s)
      is_held_back |= parts[s] < Part{} || may_hold_back(s, furthest);
    if (!is_held_back) return;
    for (const auto& [edge, rows] : forward_edges()) {
      const auto [is_llm, depth, stage, next] = edge;
      if (!runs_ahead(next))
        parts[next] = std::min(behind(stage, next, parts[stage], rows), parts[next]);
    }
    for (std::size_t s = 0; s < wishes_.size(); ++s)
      warm_up_[s] = std::min(warm_up_[s], parts[s].of(wishes_[s]));
  }

  /// The part that is left to the stage which these rows go to, of those that the one before has
  /// left. The same one behind the other; where replicas share microbatches, or each has something
  /// of all, so many as come before the first of them must have gone back. One that is not held
  /// back lets others come with as many as its bound has room for.
  Part behind(std::size_t before, std::size_t next, const Part& part, const Places& rows) const {
    if (!(part < Part{}))
      return may_hold_back(before, wishes_[next])
                 ? Part{reach(rows, most_[before]), wishes_[next] + 1}
                 : part;
    const std::int32_t held = std::min(warm_up_[before], part.of(wishes_[before]));
    const std::int32_t reached = reach(rows, held);
    const bool is_chain = reached == held && part.of(wishes_[next]) <= held;
    return is_chain ? part : Part{reached, wishes_[next] + 1};
  }

  /// Those furthest from the sink first: encoders before the llm (of several that share a replica
  /// of it the depths may be less), then by depth, stage and the stage that its rows go to.
  using Edges = std::map<std::tuple<bool, std::int32_t, std::size_t, std::size_t>, Places>;
  Edges forward_edges() const {
    std::vector<std::int32_t> place(graph_.tasks.size());
    for (const auto& own : microbatches_)
      for (std::size_t m = 0; m < own.size(); ++m)
        for (const auto task : own[m].forward) place[at(task)] = static_cast<std::int32_t>(m);
    Edges edges;
    for (std::size_t t = 0; t < graph_.tasks.size(); ++t)
      for (const Dependency& use : graph_.users(static_cast<std::int32_t>(t))) {
        const Task &from = graph_.tasks[t], &to = graph_.tasks[at(use.task)];
        const bool rows = from.kind == TaskKind::forward && to.kind == TaskKind::forward;
        const StageSpec& stage = graph_.stages[at(from.stage)];
        if (rows && from.stage != to.stage)
          edges[{!stage.encoder, -stage.depth, at(from.stage), at(to.stage)}].emplace_back(
              place[t], place[at(use.task)]);
      }
    for (auto& [edge, rows] : edges) std::ranges::sort(rows);
    return edges;
  }

  std::int32_t bounded(std::size_t stage, std::int32_t wish) const {
    return most_[stage] > 0 ? std::min(most_[stage], wish) : wish;
  }
  std::vector<std::int32_t> devices() const {
    std::vector<std::int32_t> devices;
    for (const auto& stage : graph_.stages) devices.push_back(stage.device);
    return devices;
  }

  /// Per task. An encoder may have as many forwards ahead as the narrowest stage that it exchanges
  /// rows with has room for.
  std::vector<std::int32_t> windows() const {
    std::vector<std::int32_t> widths(parts_.size(), 0);
    for (std::size_t s = 0; s < parts_.size(); ++s) {
      auto& width = widths[at(parts_[s])];
      if (graph_.stages[s].encoder && most_[s] > 0)
        width = width > 0 ? std::min(width, most_[s]) : most_[s];
    }
    return phase_windows(graph_, parts_, widths);
  }

  /// The phases of one window after the other.
  std::vector<Lane> phased_lanes(std::size_t stage) const {
    Lane all;
    for (const auto& window : by_window(microbatches_[stage], windows_))
      for (const Lane& lane : one_forward_one_backward(window, warm_up_[stage], rule_.defer))
        all.tasks.insert(all.tasks.end(), lane.tasks.begin(), lane.tasks.end());
    if (all.tasks.empty()) return {};
    return {std::move(all)};
  }

  std::vector<Lane> lanes(const TaskGraph& graph) const {
    std::vector<Lane> lanes;
    for (std::size_t s = 0; s < microbatches_.size(); ++s)
      for (auto& lane : variant_.lanes == Lanes::free ? free_lanes(microbatches_[s])
                        : is_phased()
                            ? phased_lanes(s)
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
    const auto raise = [&](std::vector<std::int32_t>& bounds, std::int32_t stage) {
      if (bounds.empty() || bounds[at(stage)] == 0) return;
      const auto count = static_cast<std::int32_t>(microbatches_[at(stage)].size());
      if (most_[at(stage)] > 0 && bounds[at(stage)] >= most_[at(stage)]) {
        refused = at(stage);
      } else if (bounds[at(stage)] < count) {
        ++bounds[at(stage)];
        helped = true;
      }
    };
    for (const auto index : result.held_back)
      raise(bounds_.in_flight, graph.tasks[at(index)].stage);
    if (variant_.lanes == Lanes::strict)
      for (const auto index : result.stuck)
        if (graph.tasks[at(index)].kind != TaskKind::forward)
          raise(warm_up_, graph.tasks[at(index)].stage);
    if (helped) return Done{};
    if (refused < graph_.stages.size())
      return refuse(refused, most_[refused] + 1,
                    "stage " + std::to_string(refused) + " may have " +
                        std::to_string(most_[refused]) +
                        " microbatches in flight, but the first backward needs the forward of more",
                    "allow " + std::to_string(most_[refused] + 1) + ", or defer fewer samples");
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
        return refuse(s, timeline.peak_in_flight[s],
                      std::string(rule_.name) + " has " +
                          std::to_string(timeline.peak_in_flight[s]) +
                          " microbatches in flight on stage " + std::to_string(s) +
                          ", more than the " + std::to_string(most_[s]) + " allowed",
                      "allow more, or use 1f1b");
    return timeline;
  }

  Error refuse(std::size_t stage, std::int32_t needed, std::string message, std::string fix) const {
    if (refuse_) return refuse_(static_cast<std::int32_t>(stage), needed);
    return {Errc::infeasible, std::move(message), "max_in_flight", std::move(fix)};
  }

  const TaskGraph& graph_;
  const Rule& rule_;
  const Variant variant_;
  std::vector<std::int32_t> most_;  // Per stage; 0: no bound.
  const RefuseBound& refuse_;
  std::vector<std::vector<MicrobatchTasks>> microbatches_;
  std::vector<std::int32_t> wishes_;   // Per stage: the warm-up without bounds.
  std::vector<std::int32_t> warm_up_;  // Per stage: forwards before its first backward.
  // Of schedules of phases: which stages have phases in common, and the window of each task.
  std::vector<std::int32_t> parts_, windows_;
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

bool splits_weight_gradient(const Schedule& schedule) {
  if (schedule.own) return schedule.own->splits_weight_gradient;
  const Rule* rule = find_rule(schedule.name);
  return rule && rule->split_weight;
}

bool runs_parts_apart(const Schedule& schedule) {
  if (schedule.own) return schedule.own->runs_parts_apart;
  const Rule* rule = find_rule(schedule.name);
  return rule && rule->defer;
}

bool has_fixed_order(const Schedule& schedule) {
  const Rule* rule = schedule.own ? nullptr : find_rule(schedule.name);
  return rule && !rule->search;
}

bool has_phases(const Schedule& schedule) {
  const Rule* rule = schedule.own ? nullptr : find_rule(schedule.name);
  return rule && rule->phases != Rule::Phases::none;
}

Result<Timeline> make_schedule(const TaskGraph& graph, const Schedule& schedule,
                               const std::vector<std::int32_t>& max_in_flight,
                               const RefuseBound& refuse) {
  if (schedule.own) return run_own(graph, *schedule.own, max_in_flight, refuse);
  const Rule* rule = find_rule(schedule.name);
  if (!rule) return unknown_schedule(schedule.name);
  if (!rule->search) return Maker(graph, *rule, max_in_flight, {}, refuse).make();
  std::vector<Variant> variants{{Lanes::free}, {Lanes::strict, false}, {Lanes::strict, true}};
  const auto is_bound = [](std::int32_t most) { return most > 0; };
  if (rule->all_room && std::ranges::any_of(max_in_flight, is_bound)) {
    variants.push_back({Lanes::free, false, true});
    variants.push_back({Lanes::strict, true, true});
  }
  std::optional<Result<Timeline>> best;
  for (const auto& variant : variants) {
    auto timeline = Maker(graph, *rule, max_in_flight, variant, refuse).make();
    const bool better =
        !best ||
        (timeline.ok() && (!best->ok() || timeline.value().step_ms < best->value().step_ms));
    if (better) best = std::move(timeline);
  }
  return std::move(*best);
}

}  // namespace troupe::scheduler
