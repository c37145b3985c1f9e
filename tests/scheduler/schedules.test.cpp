#include "scheduler/schedules.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <random>

#include "scheduler/check_order.hpp"
#include "scheduler/stage_times.hpp"
#include "tests/scheduler/example_models.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using testing::draw;

/// A chain of equal stages on a device each.
PipelineTimes chain(int stages, int microbatches, double forward, double input, double weight) {
  PipelineTimes times;
  times.microbatches = microbatches;
  for (int s = 0; s < stages; ++s) {
    StageTimes stage{
        "llm." + std::to_string(s), s, false, {}, {forward}, {input}, {weight}, {}, {}};
    if (s + 1 < stages) stage.next = {s + 1};
    times.stages.push_back(stage);
  }
  return times;
}

Timeline make(const PipelineTimes& times, const std::string& schedule,
              const std::vector<std::int32_t>& max_in_flight = {}) {
  REQUIRE(check_times(times).ok());
  auto timeline =
      make_schedule(task_graph(times, splits_weight_gradient(schedule)), schedule, max_in_flight);
  REQUIRE(timeline.ok());
  return std::move(timeline).value();
}

/// An order with names, as `check_order` takes it.
std::vector<NamedOrder> named(const PipelineTimes& times, const std::string& schedule,
                              const Timeline& timeline) {
  const auto graph = task_graph(times, splits_weight_gradient(schedule));
  std::vector<NamedOrder> order;
  for (std::size_t d = 0; d < timeline.order.size(); ++d) {
    NamedOrder list{"d" + std::to_string(d), static_cast<std::int32_t>(d), {}};
    for (const auto task : timeline.order[d])
      list.actions.push_back(action_name(times, graph.tasks[static_cast<std::size_t>(task)], true));
    order.push_back(list);
  }
  return order;
}

/// Two encoders on devices of their own or shared with the llm, random times, sometimes deferral:
/// part 1 of an encoder microbatch is needed by the next llm microbatch.
PipelineTimes random_times(std::uint32_t seed, int most_stages = 3, int most_microbatches = 6) {
  std::mt19937 random(seed);
  PipelineTimes times;
  times.microbatches = draw(random, 1, most_microbatches);
  times.link_ms = draw(random, 0, 2) * 0.5;
  const int encoders = draw(random, 0, most_stages - 1);
  const int llm = draw(random, 1, most_stages);
  const bool shared = draw(random, 0, 1) == 1;
  const bool defer = encoders > 0 && draw(random, 0, 1) == 1;
  for (int s = 0; s < encoders + llm; ++s) {
    const bool encoder = s < encoders;
    StageTimes stage;
    stage.name = (encoder ? "vision." : "llm.") + std::to_string(encoder ? s : s - encoders);
    stage.device = encoder || !shared ? s : (s - encoders) % std::max(encoders, 1);
    stage.encoder = encoder;
    if (s + 1 < encoders + llm) stage.next = {s + 1};
    for (int m = 0; m < times.microbatches; ++m) {
      stage.forward_ms.push_back(draw(random, 0, 9));
      stage.input_grad_ms.push_back(draw(random, 0, 9));
      stage.weight_grad_ms.push_back(draw(random, 0, 9));
      if (encoder && defer)
        stage.parts.push_back(m + 1 < times.microbatches ? std::vector<double>{0.75, 0.25}
                                                         : std::vector<double>{1});
    }
    times.stages.push_back(stage);
  }
  if (defer) {
    auto& needs = times.stages[static_cast<std::size_t>(encoders)].needs.emplace();
    for (int m = 0; m < times.microbatches; ++m) {
      needs.push_back({{encoders - 1, m, 0}});
      if (m > 0) needs.back().push_back({encoders - 1, m - 1, 1});
    }
  }
  // Devices in use count from 0 without gaps.
  std::vector<int> used;
  for (const auto& stage : times.stages) used.push_back(stage.device);
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  for (auto& stage : times.stages)
    stage.device =
        static_cast<int>(std::find(used.begin(), used.end(), stage.device) - used.begin());
  return times;
}

/// Least step time over all orders, by depth-first search over what begins next.
class Optimum {
 public:
  explicit Optimum(const TaskGraph& graph)
      : graph_(graph),
        left_(graph.tasks.size()),
        ready_(graph.tasks.size()),
        free_(static_cast<std::size_t>(graph.device_count())),
        work_(free_.size()) {
    for (std::size_t t = 0; t < left_.size(); ++t) {
      left_[t] = graph.needs_count(static_cast<int>(t));
      work_[static_cast<std::size_t>(graph.device_of(static_cast<int>(t)))] += graph.tasks[t].ms;
    }
    done_.resize(left_.size());
  }
  double find(double best) {
    best_ = best;
    search(0, 0);
    return best_;
  }

 private:
  void search(std::size_t count, double end) {
    if (count == left_.size()) {
      best_ = std::min(best_, end);
      return;
    }
    for (std::size_t d = 0; d < free_.size(); ++d)
      if (free_[d] + work_[d] >= best_) return;
    // Only tasks that begin before the earliest possible end need be tried next.
    double earliest = std::numeric_limits<double>::max();
    for (std::size_t t = 0; t < left_.size(); ++t)
      if (!done_[t] && left_[t] == 0) earliest = std::min(earliest, begin(t) + graph_.tasks[t].ms);
    for (std::size_t t = 0; t < left_.size(); ++t) {
      if (done_[t] || left_[t] > 0 || begin(t) > earliest) continue;
      const auto d = static_cast<std::size_t>(graph_.device_of(static_cast<int>(t)));
      const double start = begin(t);
      const double stop = start + graph_.tasks[t].ms;
      const double free_before = free_[d];
      std::vector<std::pair<std::size_t, double>> changed;
      done_[t] = true;
      free_[d] = stop;
      work_[d] -= graph_.tasks[t].ms;
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
      work_[d] += graph_.tasks[t].ms;
      free_[d] = free_before;
      done_[t] = false;
    }
  }
  double begin(std::size_t t) const {
    return std::max(ready_[t],
                    free_[static_cast<std::size_t>(graph_.device_of(static_cast<int>(t)))]);
  }

  const TaskGraph& graph_;
  std::vector<int> left_;
  std::vector<double> ready_, free_, work_;
  std::vector<bool> done_;
  double best_ = 0;
};

TEST_CASE("equal stages take the published times", "[scheduler]") {
  // S = 4, M = 8, every task 1 ms. 1F1B and GPipe: (M + S - 1)(f + b) = 11 x 3 = 33. ZB-H1: work 24
  // plus (S - 1)(f + i - w) = 3. ZB-H2: work 24 plus the first forwards of the stages before, 3.
  const auto times = chain(4, 8, 1, 1, 1);
  const auto one = make(times, "1f1b");
  CHECK(one.step_ms == 33);
  CHECK(one.peak_in_flight == std::vector<std::int32_t>{4, 3, 2, 1});
  CHECK(one.idle_ms == std::vector<double>{9, 9, 9, 9});
  const auto gpipe = make(times, "gpipe");
  CHECK(gpipe.step_ms == 33);
  CHECK(gpipe.peak_in_flight == std::vector<std::int32_t>{8, 8, 8, 8});
  const auto zero = make(times, "zero-bubble");
  CHECK(zero.step_ms == 27);
  CHECK(zero.peak_in_flight == std::vector<std::int32_t>{4, 4, 4, 4});
  CHECK(make(times, "eager-zero-bubble").step_ms == 27);
  // With i = 2: ZB-H1 is 32 + 3 x (1 + 2 - 1) = 38, ZB-H2 32 + 3 = 35.
  CHECK(make(chain(4, 8, 1, 2, 1), "zero-bubble").step_ms == 38);
  CHECK(make(chain(4, 8, 1, 2, 1), "eager-zero-bubble").step_ms == 35);
}

TEST_CASE("unequal stages take the time of the cases page", "[scheduler]") {
  // Forward + backward 10, 1, 1, 1 with 16 microbatches: exactly 160 + the way there and back of
  // one microbatch through the other three, less what overlaps: at least 160, at most 163.
  auto times = chain(4, 16, 0.5, 0.25, 0.25);
  times.stages[0].forward_ms = {5};
  times.stages[0].input_grad_ms = times.stages[0].weight_grad_ms = {2.5};
  CHECK(make(times, "1f1b").step_ms == Approx(160));
  // The slowest stage last: sum of stages + 15 x slowest = 13 + 150 = 163.
  std::swap(times.stages[0].forward_ms, times.stages[3].forward_ms);
  std::swap(times.stages[0].input_grad_ms, times.stages[3].input_grad_ms);
  std::swap(times.stages[0].weight_grad_ms, times.stages[3].weight_grad_ms);
  CHECK(make(times, "1f1b").step_ms == Approx(163));
}

TEST_CASE("encoders of different depth warm up by their own distance to the sink", "[scheduler]") {
  // E1 has two stages, E2 one, the llm three: warm-ups 5, 4, 4, 3, 2, 1.
  auto times = chain(6, 8, 1, 1, 1);
  times.stages[0].next = {1};
  times.stages[1].next = {3};
  times.stages[2].next = {3};
  const auto timeline = make(times, "1f1b");
  CHECK(timeline.peak_in_flight == std::vector<std::int32_t>{5, 4, 4, 3, 2, 1});
}

TEST_CASE("split backward does not wait for deferred samples", "[scheduler]") {
  // Half of encoder microbatch 0 is deferred to llm microbatch 1; encoder 4 + 8 ms, llm 6 + 6.
  PipelineTimes times;
  times.microbatches = 3;
  times.stages = {{"vision", 0, true, {1}, {4}, {4}, {4}, {{0.5, 0.5}, {1}, {1}}, {}},
                  {"llm", 1, false, {}, {6}, {3}, {3}, {}, {}}};
  times.stages[1].needs = {{{0, 0, 0}}, {{0, 0, 1}, {0, 1, 0}}, {{0, 2, 0}}};
  // Both: vision F0 0-4, F1 4-8; llm F0 2-8, B0 8-14, F1 14-20, B1 20-26; vision B0.0 14-18.
  // 1F1B: vision waits for B0.1 26-30, F2 30-34, B1 34-42; llm F2 34-40, B2 40-46; B2 46-54.
  CHECK(make(times, "1f1b").step_ms == 54);
  // Split: vision F2 18-22; llm F2 26-32, B2 32-38; vision B0.1 26-30, B1 30-38, B2 38-46.
  CHECK(make(times, "split-1f1b").step_ms == 46);
}

TEST_CASE("phases keep encoders and llm apart on a shared device", "[scheduler]") {
  PipelineTimes times = chain(3, 3, 1, 1, 1);
  times.stages[0].encoder = true;
  times.stages[1].device = 0;
  times.stages[2].device = 1;
  for (const std::string schedule : {"dip", "three-phase"}) {
    const auto timeline = make(times, schedule);
    const auto graph = task_graph(times, false);
    std::string sides;
    for (const auto task : timeline.order[0])
      sides +=
          graph.stages[static_cast<std::size_t>(graph.tasks[static_cast<std::size_t>(task)].stage)]
                  .encoder
              ? 'e'
              : 'l';
    CHECK(sides == "eeelllllleee");
    CHECK(timeline.peak_in_flight[0] == 3);
  }
}

TEST_CASE("bounds on memory hold, and one that is too small is refused", "[scheduler][errors]") {
  const auto times = chain(3, 8, 1, 1, 1);
  for (const std::string schedule : {"1f1b", "eager-1f1b", "split-1f1b", "zero-bubble"})
    CHECK(make(times, schedule, {2, 2, 1}).peak_in_flight[0] == 2);
  const auto gpipe = make_schedule(task_graph(times, false), "gpipe", {2, 0, 0});
  REQUIRE_FALSE(gpipe.ok());  // All forwards first, but room for two.
  CHECK(gpipe.error().code == Errc::infeasible);
  // The llm's first microbatch needs two encoder microbatches at once.
  PipelineTimes deferred;
  deferred.microbatches = 2;
  deferred.stages = {{"vision", 0, true, {1}, {1}, {1}, {1}, {}, {}},
                     {"llm", 1, false, {}, {1}, {1}, {1}, {}, {}}};
  deferred.stages[1].needs = {{{0, 0, 0}, {0, 1, 0}}, {}};
  for (const auto& schedule : schedule_names()) {
    const auto refused =
        make_schedule(task_graph(deferred, splits_weight_gradient(schedule)), schedule, {1, 1});
    INFO(schedule);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().code == Errc::infeasible);
    CHECK(make_schedule(task_graph(deferred, splits_weight_gradient(schedule)), schedule, {2, 1})
              .ok());
  }
  const auto unknown = make_schedule(task_graph(times, false), "1f2b");
  REQUIRE_FALSE(unknown.ok());
  CHECK(unknown.error().fix == "did you mean `1f1b`?");
}

TEST_CASE("every schedule of random pipelines is sound and replays to its own time",
          "[scheduler][property]") {
  for (std::uint32_t seed = 0; seed < 600; ++seed) {
    const auto times = random_times(seed);
    REQUIRE(check_times(times).ok());
    for (const auto& schedule : schedule_names()) {
      const auto timeline = make(times, schedule);
      INFO("seed " << seed << " " << schedule);
      CHECK(check_order(times, named(times, schedule, timeline), timeline.peak_in_flight).empty());
      const auto graph = task_graph(times, splits_weight_gradient(schedule));
      // A list that runs in order never begins later than the execution it was taken from.
      const auto again = replay(graph, timeline.order);
      CHECK(again.stuck.empty());
      CHECK(again.timeline.step_ms == Approx(timeline.step_ms));
      CHECK(in_flight_peaks(graph, timeline.order) == timeline.peak_in_flight);
      double busy = 0;
      for (const auto& task : graph.tasks) busy += task.ms;
      for (const double idle : timeline.idle_ms) busy += idle;
      CHECK(busy == Approx(timeline.step_ms * static_cast<double>(timeline.order.size())));
    }
  }
}

TEST_CASE(
    "no schedule beats the optimum, and eager 1F1B meets it on most small "
    "cases",
    "[scheduler][property]") {
  int cases = 0;
  int eager_met = 0;
  double worst = 1;
  for (std::uint32_t seed = 0; seed < 150; ++seed) {
    const auto times = random_times(seed, 2, 2);
    const auto graph = task_graph(times, false);
    if (graph.tasks.size() > 12) continue;
    const double first = make(times, "1f1b").step_ms;
    const double best = Optimum(graph).find(first + 1e-9);
    ++cases;
    for (const auto& schedule : schedule_names()) {
      if (splits_weight_gradient(schedule)) continue;
      INFO("seed " << seed << " " << schedule << " optimum " << best);
      CHECK(make(times, schedule).step_ms >= best - 1e-6);
    }
    const double eager = make(times, "eager-1f1b").step_ms;
    eager_met += eager <= best + 1e-6;
    if (best > 0) worst = std::max(worst, eager / best);
  }
  CAPTURE(cases, eager_met, worst);
  CHECK(cases >= 100);
  CHECK(eager_met * 10 >= cases * 8);
  CHECK(worst < 1.5);
}

}  // namespace
}  // namespace troupe::scheduler
