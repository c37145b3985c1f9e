// The named schedules against the true optimum of small pipelines.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <map>
#include <set>

#include "scheduler/iteration/schedules.hpp"
#include "tests/scheduler/random_times.hpp"

namespace troupe::scheduler {
namespace {

using testing::random_times;

/// Least step time over all orders that keep the bound on microbatches in flight, by depth-first
/// search over what begins next.
class Optimum {
 public:
  /// `most`: microbatches in flight per stage; empty: any number.
  Optimum(const TaskGraph& graph, std::vector<std::int32_t> most)
      : graph_(graph),
        most_(std::move(most)),
        left_(graph.tasks.size()),
        ready_(graph.tasks.size()),
        tail_(graph.tasks.size(), -1),
        free_(static_cast<std::size_t>(graph.device_count())),
        work_(free_.size()),
        done_(graph.tasks.size()) {
    for (std::size_t t = 0; t < left_.size(); ++t) {
      left_[t] = graph.needs_count(static_cast<int>(t));
      work_[device(t)] += graph.tasks[t].ms;
      ++tasks_left_[cell(t)];
      tail(t);
    }
  }
  /// Not above `best`.
  double find(double best) {
    best_ = best;
    search(0, 0);
    return best_;
  }

 private:
  using Cell = std::pair<std::int32_t, std::int32_t>;  // Stage and microbatch.

  std::size_t device(std::size_t t) const {
    return static_cast<std::size_t>(graph_.device_of(static_cast<int>(t)));
  }
  Cell cell(std::size_t t) const { return {graph_.tasks[t].stage, graph_.tasks[t].microbatch}; }
  double begin(std::size_t t) const { return std::max(ready_[t], free_[device(t)]); }

  /// From the begin of a task to the end of what needs it.
  double tail(std::size_t t) {
    if (tail_[t] >= 0) return tail_[t];
    double rest = 0;
    for (const auto& user : graph_.users(static_cast<int>(t)))
      rest = std::max(rest, user.delay_ms + tail(static_cast<std::size_t>(user.task)));
    return tail_[t] = graph_.tasks[t].ms + rest;
  }

  bool fits(std::size_t t) {
    const auto stage = static_cast<std::size_t>(graph_.tasks[t].stage);
    if (most_.empty() || most_[stage] == 0 || open_[graph_.tasks[t].stage].contains(cell(t).second))
      return true;
    return static_cast<std::int32_t>(open_[graph_.tasks[t].stage].size()) < most_[stage];
  }

  void search(std::size_t count, double end) {
    if (count == left_.size()) {
      best_ = std::min(best_, end);
      return;
    }
    for (std::size_t d = 0; d < free_.size(); ++d)
      if (free_[d] + work_[d] >= best_) return;
    // Only tasks that begin before the earliest possible end need be tried next.
    double earliest = std::numeric_limits<double>::max();
    for (std::size_t t = 0; t < left_.size(); ++t) {
      if (done_[t] || left_[t] > 0) continue;
      if (begin(t) + tail_[t] >= best_) return;
      if (fits(t)) earliest = std::min(earliest, begin(t) + graph_.tasks[t].ms);
    }
    for (std::size_t t = 0; t < left_.size(); ++t)
      if (!done_[t] && left_[t] == 0 && begin(t) <= earliest && fits(t)) take(t, count, end);
  }

  void take(std::size_t t, std::size_t count, double end) {
    const auto d = device(t);
    const double stop = begin(t) + graph_.tasks[t].ms;
    const double free_before = free_[d];
    std::vector<std::pair<std::size_t, double>> changed;
    done_[t] = true;
    free_[d] = stop;
    work_[d] -= graph_.tasks[t].ms;
    const auto open_before = open_;
    open_[cell(t).first].insert(cell(t).second);
    if (--tasks_left_[cell(t)] == 0) open_[cell(t).first].erase(cell(t).second);
    for (const auto& user : graph_.users(static_cast<int>(t))) {
      const auto u = static_cast<std::size_t>(user.task);
      changed.emplace_back(u, ready_[u]);
      --left_[u];
      ready_[u] = std::max(ready_[u], stop + user.delay_ms);
    }
    search(count + 1, std::max(end, stop));
    for (auto change = changed.rbegin(); change != changed.rend(); ++change) {
      ++left_[change->first];
      ready_[change->first] = change->second;
    }
    ++tasks_left_[cell(t)];
    open_ = open_before;
    work_[d] += graph_.tasks[t].ms;
    free_[d] = free_before;
    done_[t] = false;
  }

  const TaskGraph& graph_;
  const std::vector<std::int32_t> most_;
  std::vector<int> left_;
  std::vector<double> ready_, tail_, free_, work_;
  std::vector<bool> done_;
  std::map<Cell, int> tasks_left_;
  std::map<std::int32_t, std::set<std::int32_t>> open_;  // Per stage: microbatches in flight.
  double best_ = 0;
};

/// How often a schedule met the optimum, and how far it was off.
struct Score {
  int cases = 0, met = 0;
  double worst = 1, sum = 0;

  void add(double step_ms, double best) {
    ++cases;
    met += step_ms <= best + 1e-6;
    const double ratio = best > 0 ? step_ms / best : 1;
    worst = std::max(worst, ratio);
    sum += ratio;
  }
};

std::string text_of(const std::map<std::string, Score>& scores) {
  std::string text;
  for (const auto& [schedule, score] : scores)
    text += schedule + ": " + std::to_string(score.met) + " of " + std::to_string(score.cases) +
            " optimal, mean " + std::to_string(score.sum / score.cases) + ", worst " +
            std::to_string(score.worst) + "\n";
  return text;
}

/// Larger graphs take the search too long.
constexpr std::size_t kMostTasks = 20;
constexpr double kNever = 1e9;

TEST_CASE("no schedule beats the optimum of its tasks, and all come near it",
          "[scheduler][property]") {
  std::map<std::string, Score> scores;
  for (std::uint32_t seed = 0; seed < 700; ++seed) {
    const auto times = random_times(seed, 2, 3);
    for (const bool split : {false, true}) {
      const auto graph = task_graph(times, split);
      if (graph.tasks.size() > kMostTasks) continue;
      double best = -1;
      for (const auto& schedule : schedule_names()) {
        if (splits_weight_gradient(schedule) != split) continue;
        const auto made = make_schedule(graph, schedule);
        REQUIRE(made.ok());
        if (best < 0) best = Optimum(graph, {}).find(made.value().step_ms + 1e-6);
        INFO("seed " << seed << " " << schedule << " optimum " << best);
        REQUIRE(made.value().step_ms >= best - 1e-5);
        scores[schedule].add(made.value().step_ms, best);
      }
    }
  }
  INFO(text_of(scores));
  CHECK(scores.size() == schedule_names().size());
  for (const auto& entry : scores) CHECK(entry.second.sum < 1.05 * entry.second.cases);
  const auto& eager = scores["eager-1f1b"];
  CHECK(eager.cases > 600);
  CHECK(eager.met * 10 >= eager.cases * 8);
  CHECK(eager.worst < 1.5);
  CHECK(scores["zero-bubble"].met * 10 >= scores["zero-bubble"].cases * 8);
}

TEST_CASE("under a bound on memory no schedule beats the optimum that keeps it",
          "[scheduler][property]") {
  std::map<std::string, Score> scores;
  for (std::uint32_t seed = 0; seed < 700; ++seed) {
    const auto times = random_times(seed, 2, 3);
    std::vector<std::int32_t> most;
    for (std::size_t s = 0; s < times.stages.size(); ++s)
      most.push_back(1 + static_cast<std::int32_t>((seed + s) % 2));
    for (const bool split : {false, true}) {
      const auto graph = task_graph(times, split);
      if (graph.tasks.size() > kMostTasks) continue;
      double best = -1;
      for (const auto& schedule : schedule_names()) {
        if (splits_weight_gradient(schedule) != split) continue;
        const auto made = make_schedule(graph, schedule, most);
        if (!made.ok()) {  // All forwards first, or deferral that needs more.
          if (schedule == "eager-1f1b" || schedule == "eager-zero-bubble") {
            INFO("seed " << seed << " " << schedule << " is refused");
            REQUIRE(Optimum(graph, most).find(kNever) == kNever);
          }
          continue;
        }
        for (std::size_t s = 0; s < most.size(); ++s)
          REQUIRE(made.value().peak_in_flight[s] <= most[s]);
        if (best < 0) best = Optimum(graph, most).find(made.value().step_ms + 1e-6);
        INFO("seed " << seed << " " << schedule << " optimum " << best);
        REQUIRE(made.value().step_ms >= best - 1e-5);
        scores[schedule].add(made.value().step_ms, best);
      }
    }
  }
  INFO(text_of(scores));
  for (const auto& entry : scores) CHECK(entry.second.sum < 1.03 * entry.second.cases);
  CHECK(scores["eager-1f1b"].cases > 600);
}

}  // namespace
}  // namespace troupe::scheduler
