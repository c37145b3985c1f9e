// Random layouts on grids: what is planned for them runs rank by rank, by an execution that knows
// no shared lists.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <random>
#include <set>

#include "runtime/vocabulary/gradient_sum.hpp"
#include "scheduler/check/check_plan.hpp"
#include "scheduler/simulate/simulate_plan.hpp"
#include "tests/scheduler/checked_faults.hpp"
#include "tests/scheduler/random_plans.hpp"

namespace troupe::scheduler {
namespace {

using testing::draw;
using testing::text_of;

/// Runs the lists on every device by itself, each as a rank: what a grid computes begins when all
/// its devices stand at it, rows are there when all devices of the source have sent them, a sum
/// when all ranks of all other holders have given theirs.
class RankExecution {
 public:
  RankExecution(const ParallelPlan& plan, const IterationPlan& iteration)
      : plan_(plan), iteration_(iteration), next_(plan.devices.size()) {}

  bool run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t d = 0; d < next_.size(); ++d)
        while (!done(d) && may(d)) {
          took_.insert({at(d), d});
          ++next_[d];
          moved = true;
        }
      std::size_t waiting = 0;
      for (std::size_t d = 0; d < next_.size(); ++d)
        waiting += !done(d) && at(d).kind == ActionKind::commit ? 1 : 0;
      if (!moved && waiting == next_.size())
        for (auto& next : next_) ++next, moved = true;
    }
    for (std::size_t d = 0; d < next_.size(); ++d)
      if (!done(d)) return false;
    return true;
  }

 private:
  const std::vector<Action>& list(std::size_t d) const {
    return iteration_.actions[plan_.lead_of(DeviceId{d}).index()];
  }
  bool done(std::size_t d) const { return next_[d] == list(d).size(); }
  const Action& at(std::size_t d) const { return list(d)[next_[d]]; }

  bool took(ActionKind kind, Action action, const std::vector<DeviceId>& devices) const {
    action.kind = kind;
    return std::ranges::all_of(devices, [&](DeviceId d) {
      return took_.contains({action, d.index()});
    });
  }

  bool may(std::size_t d) const {
    const Action& action = at(d);
    if (action.kind == ActionKind::commit) return false;
    if (action.microbatch.valid())  // All ranks are at it, or have been.
      return std::ranges::all_of(plan_.at(action.stage).devices, [&](DeviceId rank) {
        return took_.contains({action, rank.index()}) ||
               (!done(rank.index()) && at(rank.index()) == action);
      });
    if (action.message.valid()) {
      const Message& message = iteration_.messages[action.message.index()];
      const bool relays =
          action.kind == ActionKind::relay || action.kind == ActionKind::relay_gradient;
      const bool gradient =
          action.kind == ActionKind::receive_gradient || action.kind == ActionKind::relay_gradient;
      if (action.kind != ActionKind::receive && !gradient && !relays) return true;
      Action sent = action;
      sent.stage = {};
      if (message.relay.valid() && !relays)  // From the device that rows pass, not from its like.
        return took(gradient ? ActionKind::relay_gradient : ActionKind::relay, sent,
                    {message.relay});
      sent.stage = gradient ? message.destination.stage : message.source.stage;
      return took(gradient ? ActionKind::send_gradient : ActionKind::send, sent,
                  plan_.at(sent.stage).devices);
    }
    if (action.group.valid() && action.kind != ActionKind::reduce_send) return has_parts(d, action);
    return true;
  }

  /// Whether every rank of every holder that gives something to this one has done so.
  bool has_parts(std::size_t d, const Action& action) const {
    const ParameterGroup& group = plan_.groups[action.group.index()];
    const GroupSum sum = plan_sum(plan_, action.group);
    const std::int32_t place = role_of(sum, DeviceId{d}).place;
    if (place < 0) return true;
    for (const SumTransfer& from : sum.taken(place, action.kind)) {
      const SumRole& role = sum.roles[static_cast<std::size_t>(from.holder)];
      Action given = action;
      given.kind = from.kind;
      given.stage = role.uses.empty() ? StageId{} : group.uses[role.uses.front()].stage;
      for (const DeviceId rank : role.ranks)
        if (!took_.contains({given, rank.index()})) return false;
    }
    return true;
  }

  const ParallelPlan& plan_;
  const IterationPlan& iteration_;
  std::vector<std::size_t> next_;
  std::set<std::pair<Action, std::size_t>> took_;
};

TEST_CASE("random grids: every schedule is sound and runs rank by rank", "[scheduler][property]") {
  std::size_t shared = 0, met = 0, passed = 0;
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    auto plan = testing::random_grid_plan(random, testing::random_model(random));
    if (plan.nodes().size() > 1 && draw(random, 0, 2) == 0)
      plan = add_standbys(std::move(plan), {1, Dtype::fp32}).value();
    IterationInput input;
    const int count = draw(random, 0, 10);
    input.samples = testing::random_samples(random, plan.model.modules.size() > 1, count);
    input.microbatches = assign_by_count(plan, count, draw(random, 1, 4));
    if (draw(random, 0, 1) == 1)
      input.microbatches = testing::random_deferral(plan, input.microbatches, random);
    input.schedule = schedule_names()[seed % schedule_names().size()];
    if (const int pin = draw(random, 0, 5); pin < 5)
      input.routes.pin = pin == 0 ? Route::leader : Route::gather_scatter;
    const auto made = plan_iteration(plan, std::move(input));
    INFO((made.ok() ? "" : made.error().message));
    REQUIRE(made.ok());
    const IterationPlan& iteration = made.value();
    const auto faults = check(plan, iteration);
    INFO(text_of(faults));
    REQUIRE(faults.empty());
    REQUIRE(RankExecution(plan, iteration).run());
    const auto step = simulate(plan, iteration, {});
    REQUIRE(step.ok());
    // The busiest device works no longer than the step takes, and each list has run to its end.
    for (std::size_t d = 0; d < plan.devices.size(); ++d) {
      CHECK(iteration.actions[d].empty() == !plan.is_lead(DeviceId{d}));
      CHECK(step.value().done[d] == std::ssize(iteration.actions[d]));
    }
    for (const Message& message : iteration.messages) passed += message.relay.valid();
    for (std::size_t s = 0; s < plan.stages.size(); ++s) {
      shared += plan.stages[s].devices.size() > 1;
      met += plan.leads_of(StageId{s}).size() > 1;
    }
  }
  CHECK(shared > 400);
  CHECK(met > 100);
  CHECK(passed > 5);
}

}  // namespace
}  // namespace troupe::scheduler
