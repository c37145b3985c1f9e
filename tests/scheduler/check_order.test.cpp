#include "scheduler/check/check_order.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <random>

#include "scheduler/iteration/list_schedule.hpp"
#include "scheduler/iteration/schedules.hpp"
#include "tests/scheduler/example_models.hpp"

namespace troupe::scheduler {
namespace {

using testing::draw;

/// vision and llm.0 share device 0, llm.1 has device 1; two microbatches, the first of vision in
/// two parts.
PipelineTimes shared() {
  PipelineTimes times;
  times.microbatches = 2;
  times.stages = {{"vision", 0, true, {1}, {2}, {1}, {1}, {{0.5, 0.5}, {1}}, {}},
                  {"llm.0", 0, false, {2}, {1}, {1}, {1}, {}, {}},
                  {"llm.1", 1, false, {}, {3}, {3}, {3}, {}, {}}};
  REQUIRE(check_times(times).ok());
  return times;
}

std::vector<NamedOrder> sound_order() {
  return {{"gpu0",
           0,
           {"vision:F0", "llm.0:F0", "vision:F1", "llm.0:F1", "llm.0:B0", "vision:B0", "llm.0:B1",
            "vision:B1"}},
          {"gpu1", 1, {"F0", "B0", "F1", "B1"}}};
}

std::vector<Fault> faults_of(const std::vector<NamedOrder>& order,
                             std::vector<std::int32_t> most = {0, 0, 0}) {
  return check_order(shared(), order, most);
}

/// The one fault of the sound order with an action put at the end of a device's list.
Fault fault_with(std::size_t device, const std::string& action) {
  auto order = sound_order();
  order[device].actions.push_back(action);
  const auto faults = faults_of(order);
  INFO(action);
  REQUIRE(faults.size() == 1);
  return faults[0];
}

TEST_CASE("a sound order has no fault, whole or in parts", "[scheduler]") {
  CHECK(faults_of(sound_order()).empty());
  auto order = sound_order();
  order[0].actions = {"vision:F0.0", "vision:F0.1", "llm.0:F0",    "vision:F1",
                      "llm.0:F1",    "llm.0:B0",    "vision:B0.1", "vision:B0.0",
                      "llm.0:I1",    "vision:I1",   "llm.0:W1",    "vision:W1"};
  CHECK(faults_of(order).empty());
}

TEST_CASE("a name that means no action says why", "[scheduler][errors]") {
  const std::pair<const char*, const char*> names[] = {
      {"F0", "the device has several stages"},
      {"llm.7:F0", "there is no such stage"},
      {"llm.1:F0", "the stage runs on another"},
      {"vision:X0", "an action is F, B, I or W"},
      {"vision:", "an action is F, B, I or W"},
      {"vision:F", "it names no microbatch"},
      {"vision:F-1", "it names no microbatch"},
      {"vision:F0.", "it names no part"},
      {"vision:F0.0x", "it names no part"},
      {"vision:F0x", "it names no part"},
      {"vision:F2", "there is no such microbatch"},
      {"vision:F0.2", "there is no such part"},
      {"vision:F99999999999", "it names no microbatch"}};
  for (const auto& [name, why] : names) {
    const auto fault = fault_with(0, name);
    CHECK(fault.kind == FaultKind::unknown);
    CHECK(fault.action == name);
    INFO(fault.why);
    CHECK(fault.why.find(why) != std::string::npos);
  }
  auto order = sound_order();
  order.push_back({"gpu9", -1, {"F0"}});
  const auto faults = faults_of(order);
  REQUIRE(faults.size() == 1);
  CHECK(faults[0].why == "there is no device 'gpu9'");
}

TEST_CASE("each kind of fault of an order is found", "[scheduler]") {
  CHECK(fault_with(1, "F1").kind == FaultKind::duplicate);
  auto order = sound_order();
  order[1].actions.pop_back();
  auto faults = faults_of(order);
  REQUIRE(faults.size() == 1);
  CHECK(faults[0].kind == FaultKind::missing);
  CHECK(faults[0].action == "B1");

  // Half of a split backward, beside the whole one: the weight gradient is missing, the whole one
  // too many.
  order = sound_order();
  order[1].actions.push_back("I1");
  faults = faults_of(order);
  REQUIRE(faults.size() == 2);
  CHECK(faults[0].kind == FaultKind::unknown);
  CHECK(faults[0].why.find("split into I and W") != std::string::npos);
  CHECK(faults[1].kind == FaultKind::missing);
  CHECK(faults[1].action == "W1");

  order = sound_order();
  std::swap(order[1].actions[0], order[1].actions[1]);
  faults = faults_of(order);
  REQUIRE(faults.size() == 1);
  CHECK(faults[0].kind == FaultKind::dependency);
  CHECK(faults[0].action == "B0");

  // llm.1 wants both forwards first, device 0 a backward before the second forward.
  order = sound_order();
  order[1].actions = {"F0", "F1", "B0", "B1"};
  order[0].actions = {"vision:F0", "llm.0:F0", "llm.0:B0", "vision:B0",
                      "vision:F1", "llm.0:F1", "llm.0:B1", "vision:B1"};
  faults = faults_of(order);
  REQUIRE(faults.size() == 2);
  for (const auto& fault : faults) CHECK(fault.kind == FaultKind::deadlock);

  CHECK(faults_of(sound_order(), {2, 2, 1}).empty());
  faults = faults_of(sound_order(), {1, 2, 1});
  REQUIRE(faults.size() == 1);
  CHECK(faults[0].kind == FaultKind::memory);
  CHECK(faults[0].action == "vision:F1");
}

TEST_CASE("orders are sound exactly if their replay comes to its end", "[scheduler][property]") {
  int sound = 0, stuck = 0;
  for (std::uint32_t seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    PipelineTimes times;
    times.microbatches = draw(random, 1, 3);
    const int stages = draw(random, 1, 4);
    const int devices = draw(random, 1, stages);
    for (int s = 0; s < stages; ++s) {
      StageTimes stage{"s" + std::to_string(s), s % devices, false, {}, {1}, {1}, {1}, {}, {}};
      if (s + 1 < stages) stage.next = {s + 1};
      times.stages.push_back(stage);
    }
    const auto graph = task_graph(times, draw(random, 0, 1) == 1);
    auto order = make_schedule(graph, "eager-1f1b").value().order;
    for (int i = draw(random, 0, 2); i > 0; --i) {
      auto& list = order[random() % order.size()];
      std::swap(list[random() % list.size()], list[random() % list.size()]);
    }
    std::vector<NamedOrder> named;
    for (std::size_t d = 0; d < order.size(); ++d) {
      named.push_back({"d", static_cast<std::int32_t>(d), {}});
      for (const auto task : order[d])
        named.back().actions.push_back(
            action_name(times, graph.tasks[static_cast<std::size_t>(task)], true));
    }
    const std::vector<std::int32_t> any(times.stages.size(), 0);
    const bool runs = replay(graph, order).stuck.empty();
    (runs ? sound : stuck) += 1;
    INFO("seed " << seed);
    REQUIRE(check_order(times, named, any).empty() == runs);
    if (!runs) continue;
    const auto peaks = in_flight_peaks(graph, order);
    REQUIRE(check_order(times, named, peaks).empty());
    for (std::size_t s = 0; s < peaks.size(); ++s) {
      if (peaks[s] < 2) continue;
      auto tight = peaks;
      --tight[s];
      REQUIRE(check_order(times, named, tight).front().kind == FaultKind::memory);
    }
  }
  CHECK(sound > 500);
  CHECK(stuck > 500);
}

}  // namespace
}  // namespace troupe::scheduler
