#include "scheduler/recovery/wait_choice.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "scheduler/recovery/warm_up.hpp"
#include "tests/scheduler/example_models.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using testing::text_llm;

/// One sample a ms without who comes, two with it; both copies take 5 ms, it takes state over for
/// 20 ms, and enters with a stall of 1 ms.
WaitOutlook outlook_of(double ready_ms, double horizon_ms = 1000) {
  return {1, 2, ready_ms, 5, 5, 20, 1, horizon_ms};
}

TEST_CASE("a wait pays where a node comes soon against what entering later costs",
          "[scheduler][recovery]") {
  // Going on, ready in 10 ms: 25 samples until it enters at 30 ms, 2 x 969 behind the stall.
  CHECK(lost_going_on(outlook_of(10)) == Approx(2000 - 25 - 1938));
  // Waiting: 2 x (1000 - 15).
  CHECK(lost_waiting(outlook_of(10)) == Approx(30));
  CHECK(waiting_pays(outlook_of(10)));
  // By the rule, 2 x (20 + 1 - 5) > 1 x (T + 20 - 5): up to 17 ms.
  CHECK(waiting_pays(outlook_of(16)));
  CHECK_FALSE(waiting_pays(outlook_of(18)));
}

TEST_CASE("of a wait that loses as many samples as going on there is none",
          "[scheduler][recovery]") {
  CHECK(lost_waiting(outlook_of(17)) == lost_going_on(outlook_of(17)));
  CHECK_FALSE(waiting_pays(outlook_of(17)));
  CHECK_FALSE(waiting_pays({}));  // Nothing is trained either way.
}

TEST_CASE("who is ready before the layout without it is up enters when that is",
          "[scheduler][recovery]") {
  // Copied in 40 ms, ready in 10 and warm at once: 2 x (1000 - 40 - 1), or 2 x (1000 - 15).
  WaitOutlook outlook = outlook_of(10);
  outlook.copy_without_ms = 40;
  outlook.warm_ms = 0;
  CHECK(lost_going_on(outlook) == Approx(82));
  CHECK(lost_waiting(outlook) == Approx(30));
}

TEST_CASE("nobody waits beyond the time at which nodes change again", "[scheduler][recovery]") {
  // Nothing is trained by then where the job waits; 3 of 2 x 8 samples where it goes on.
  CHECK(lost_waiting(outlook_of(10, 8)) == Approx(16));
  CHECK(lost_going_on(outlook_of(10, 8)) == Approx(13));
  CHECK_FALSE(waiting_pays(outlook_of(10, 8)));
}

/// Both ways played through, ms by ms.
struct Played {
  double going_on = 0;
  double waiting = 0;
};

Played play(const WaitOutlook& outlook) {
  Played trained;
  enum class Does { copies, trains_alone, warms, stalls, trains };
  Does does = Does::copies;
  double left = outlook.copy_without_ms;  // Of what it does, where that has an end.
  double waits = outlook.ready_ms + outlook.copy_with_ms;
  for (double ms = 0; ms < outlook.horizon_ms; ++ms) {
    if (does == Does::copies && left <= 0) does = Does::trains_alone;
    if (does == Does::trains_alone && ms >= outlook.ready_ms)
      does = Does::warms, left = outlook.warm_ms;
    if (does == Does::warms && left <= 0) does = Does::stalls, left = outlook.stall_ms;
    if (does == Does::stalls && left <= 0) does = Does::trains;
    if (does == Does::trains_alone || does == Does::warms)
      trained.going_on += outlook.without_per_ms;
    if (does == Does::trains) trained.going_on += outlook.with_per_ms;
    --left;
    if (waits <= 0) trained.waiting += outlook.with_per_ms;
    --waits;
  }
  return trained;
}

TEST_CASE("both predictions are what playing the time through gives",
          "[scheduler][recovery][property]") {
  std::mt19937 random(7);
  const auto drawn = [&](int most) {
    return static_cast<double>(std::uniform_int_distribution<int>(0, most)(random));
  };
  for (int round = 0; round < 5000; ++round) {
    CAPTURE(round);
    const WaitOutlook outlook{drawn(9),  drawn(9),  drawn(40), drawn(40),
                              drawn(40), drawn(40), drawn(9),  drawn(200)};
    const Played trained = play(outlook);
    const double most = std::max(outlook.without_per_ms, outlook.with_per_ms) * outlook.horizon_ms;
    CHECK(lost_going_on(outlook) == most - trained.going_on);
    CHECK(lost_waiting(outlook) == most - trained.waiting);
    CHECK(waiting_pays(outlook) == (trained.waiting > trained.going_on));
    if (!waiting_pays(outlook)) continue;
    WaitOutlook sooner = outlook;  // A wait that paid pays until it is over.
    sooner.ready_ms = std::max(0.0, outlook.ready_ms - drawn(20));
    CHECK(waiting_pays(sooner));
  }
}

TEST_CASE("a node comes as soon as the slowest of the last ones, and a quarter later",
          "[scheduler][recovery]") {
  JoinTimes joins;
  CHECK_FALSE(joins.ready_in_ms(0).has_value());  // Nobody has joined yet.
  joins.add(800);
  joins.add(400);
  CHECK(joins.ready_in_ms(0).value() == 1000);
  CHECK(joins.ready_in_ms(900).value() == 100);
  CHECK_FALSE(joins.ready_in_ms(1000).has_value());  // Longer than any: nothing is known.
  for (int others = 0; others < 8; ++others) joins.add(200);
  CHECK(joins.ready_in_ms(0).value() == 250);
}

HandStage all_layers_on(std::int32_t node) { return {node, 0, {{"llm", LayerRange{0, 6}}}}; }

/// A pipeline of six layers on node 0 and one on node 1, 8 samples in a second. Node 0 was lost;
/// node 2 comes. 120 bytes of state per layer go over the network between nodes.
struct OneLeft {
  explicit OneLeft(double bytes_per_ms) : job(made(bytes_per_ms)) {}

  ChangingJob made(double bytes_per_ms) const {
    ChangingJob one{plan, {3, 1}, templates, parameters, 8, {}, 0, plan.nodes(), left};
    one.network_bytes_per_ms = bytes_per_ms;
    one.step_ms = 1000;
    one.quiet_ms = 1e6;
    one.fits = [](const ParallelPlan&) -> Status { return Done{}; };
    one.fits_beside = [](const auto&) -> Status { return Done{}; };
    return one;
  }

  std::optional<WaitOutlook> outlook(double ready_ms) const {
    const auto next = next_layout(job, {NodeId{1}}).value();
    return wait_outlook(job, {next.plan, next.moves, next.want, {NodeId{1}}}, NodeId{2}, ready_ms);
  }

  ParallelPlan plan =
      place_by_hand(text_llm(6), {{{all_layers_on(0)}, {all_layers_on(1)}}}, {2, 1}).value();
  TemplateSet templates = [] {
    TemplateRequest request;
    request.layers.assign(6, {1, 2, Bytes{1}, {}});
    request.node_count = 3;
    request.device_memory = Bytes{6};
    return make_templates(request).value();
  }();
  std::vector<ParameterInfo> parameters = [] {
    std::vector<ParameterInfo> all;
    for (std::int32_t layer = 0; layer < 6; ++layer)
      all.push_back({"p" + std::to_string(layer), {10}, {{ModuleId{0}, layer}}, true});
    return all;
  }();
  StatePlacement left = [this] {
    auto placed = place_state(plan, parameters, Dtype::fp32);
    drop_holders(placed, NodeId{0});
    return placed;
  }();
  ChangingJob job;
};

TEST_CASE("what waiting would bring follows from layouts, copies and warm-ups",
          "[scheduler][recovery]") {
  const auto outlook = OneLeft(1).outlook(100);
  REQUIRE(outlook.has_value());
  // Half of 8 samples in a second; nothing moves to a layout that is there.
  CHECK(outlook->without_per_ms == Approx(0.004));
  CHECK(outlook->copy_without_ms == kTurnoverMs);
  CHECK(outlook->with_per_ms > 0.006);
  CHECK(outlook->copy_with_ms > kTurnoverMs + 100);
  // A step takes 2 s then, in which a kilobyte comes, more than there is: the step under way and
  // the next one, then one for the state, with a turnover before and after it.
  CHECK(outlook->warm_ms == Approx(1.5 * 2000 + 2000));
  CHECK(outlook->stall_ms == 2 * kTurnoverMs);
  CHECK(outlook->ready_ms == 100);
  CHECK(outlook->horizon_ms == 1e6);
  CHECK(waiting_pays(*outlook));
}

TEST_CASE("who is ready before the layout without it is up enters before any step",
          "[scheduler][recovery]") {
  const auto amid = OneLeft(1e6).outlook(100), before = OneLeft(1e6).outlook(40);
  REQUIRE(amid.has_value());
  REQUIRE(before.has_value());
  CHECK(amid->warm_ms == Approx(1.5 * 2000));
  CHECK(before->warm_ms == 0);
  CHECK(amid->stall_ms == Approx(kTurnoverMs).epsilon(0.01));
}

TEST_CASE("a wait is ruled out without a search only where one rules it out too",
          "[scheduler][recovery]") {
  OneLeft one(1);
  int asked = 0;  // Of each layout that a search weighs.
  one.job.fits = [&](const ParallelPlan&) -> Status {
    ++asked;
    return Done{};
  };
  const auto asked_for = [&](double ready_ms) {
    asked = 0;
    REQUIRE(one.outlook(ready_ms).has_value());
    return asked;
  };
  REQUIRE(next_layout(one.job, {NodeId{1}}).ok());
  const int alone = asked;  // Of the layout without who comes.
  CHECK(asked_for(100) > alone);
  // Steps take 2 s: the others would have trained fifteen until then.
  CHECK(asked_for(30'000) == alone);
  CHECK(one.outlook(30'000)->with_per_ms == Approx(0.008));  // As before the loss.
  // Behind the first turnover the outlook is the same however late it comes, but for that.
  WaitOutlook searched = one.outlook(100).value();
  for (double ready_ms = 100; ready_ms < 40'000; ready_ms += 300) {
    CAPTURE(ready_ms);
    searched.ready_ms = ready_ms;
    CHECK(waiting_pays(one.outlook(ready_ms).value()) == waiting_pays(searched));
  }
}

TEST_CASE("where nothing can be predicted nobody waits", "[scheduler][recovery]") {
  CHECK_FALSE(OneLeft(0).outlook(100).has_value());  // No network.
  OneLeft before_a_step(1);
  before_a_step.job.step_ms = 0;
  CHECK_FALSE(before_a_step.outlook(100).has_value());
  OneLeft unknown(1);
  unknown.templates.layer_ms.clear();
  CHECK_FALSE(unknown.outlook(100).has_value());
}

TEST_CASE("for a node that would only stand by nobody waits", "[scheduler][recovery]") {
  OneLeft spare(1);
  spare.job.spares = 2;
  CHECK_FALSE(spare.outlook(100).has_value());
}

}  // namespace
}  // namespace troupe::scheduler
