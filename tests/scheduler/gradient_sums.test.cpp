// Sums of gradients in lists of actions: the order of trees by node, and planted faults of these
// and of standby holders.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <string>
#include <vector>

#include "runtime/vocabulary/gradient_sum.hpp"
#include "scheduler/check/check_plan.hpp"
#include "scheduler/simulate/simulate_plan.hpp"
#include "tests/scheduler/checked_faults.hpp"
#include "tests/scheduler/random_plans.hpp"

namespace troupe::scheduler {
namespace {

using testing::kinds;
using testing::random_case;
using testing::text_of;
using enum ActionKind;

TEST_CASE("each rule about standby holders finds its planted fault", "[scheduler][property]") {
  std::map<std::string, int> planted;
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    const auto made = random_case(seed);
    const auto sound = plan_iteration(made.plan, made.input).value();
    for (std::size_t d = 0; d < sound.actions.size(); ++d) {
      const auto place_of = [&](ActionKind kind) {
        const auto& list = sound.actions[d];
        return std::find_if(list.begin(), list.end(),
                            [&](const Action& action) {
                              return action.kind == kind && !action.stage.valid();
                            }) -
               list.begin();
      };
      const auto count = static_cast<std::ptrdiff_t>(sound.actions[d].size());
      const auto finds = [&](const char* rule, FaultKind kind, const Action& action,
                             const IterationPlan& iteration) {
        ++planted[rule];
        const auto faults = check(made.plan, iteration);
        INFO(rule << "\n" << text_of(faults));
        REQUIRE(std::any_of(faults.begin(), faults.end(), [&](const Fault& fault) {
          return fault.kind == kind && fault.device == DeviceId{d} &&
                 fault.action == describe(made.plan, action);
        }));
      };
      const auto without = [&](const char* rule, std::ptrdiff_t place) {
        if (place == count) return;
        auto iteration = sound;
        auto& list = iteration.actions[d];
        const Action action = list[static_cast<std::size_t>(place)];
        list.erase(list.begin() + place);
        finds(rule, FaultKind::missing, action, iteration);
      };
      without("without its sum", place_of(reduce_receive));
      without("without its update", place_of(optimizer_step));
      if (place_of(reduce_receive) == count) continue;
      // It would give gradients that it does not have, or sum up what its owner sums up.
      for (const auto kind : {reduce_send, reduce}) {
        auto iteration = sound;
        auto& list = iteration.actions[d];
        Action action = list[static_cast<std::size_t>(place_of(reduce_receive))];
        action.kind = kind;
        list.insert(list.begin(), action);
        finds("summed twice", FaultKind::unknown, action, iteration);
      }
      auto iteration = sound;
      auto& list = iteration.actions[d];
      const Action taken = list[static_cast<std::size_t>(place_of(reduce_receive))];
      list.insert(list.begin(), taken);
      finds("taken twice", FaultKind::duplicate, taken, iteration);
    }
  }
  CHECK(planted.size() == 4);
  for (const auto& [rule, times] : planted) CHECK(times > 50);
}

TEST_CASE("two nodes of two copies add up on their nodes first, and get sums over one device",
          "[scheduler]") {
  // Copies on nodes 0, 0, 1 and 1; the small layer is one chunk, owned by device 0. Device 2 adds
  // up for node 1, and hands the sum on to device 3.
  const HandLayout layout{{{{0, 0, {{"llm", {}}}}},
                           {{0, 1, {{"llm", {}}}}},
                           {{1, 0, {{"llm", {}}}}},
                           {{1, 1, {{"llm", {}}}}}}};
  const auto plan = place_by_hand(testing::text_llm(1), layout, {2, 2}).value();
  REQUIRE(plan.groups.at(0).order == SumOrder::tree_by_node);
  IterationInput input;
  input.microbatches = assign_by_count(plan, 0, 1);
  const auto iteration = plan_iteration(plan, input).value();
  const std::vector<std::vector<ActionKind>> expected{
      {reduce, commit, optimizer_step},
      {reduce_send, reduce_receive, commit, optimizer_step},
      {reduce_partial, reduce_relay, commit, optimizer_step},
      {reduce_send, reduce_receive, commit, optimizer_step}};
  for (std::size_t d = 0; d < expected.size(); ++d) {
    std::vector<ActionKind> kinds;
    for (const Action& action : iteration.actions[d]) kinds.push_back(action.kind);
    CHECK(kinds == expected[d]);
  }
}

/// Five copies of two large layers: devices 0 and 1 on node 0, 2 on node 1, 3 and 4 on node 2. Of
/// each layer each device owns a chunk; those that share a node add others up and hand sums on.
struct Trees {
  ParallelPlan plan;
  IterationPlan sound;

  Trees() {
    auto model = testing::text_llm(2);
    for (auto& layer : model.modules[0].layers) layer.parameter_elements = 40'000;
    HandLayout layout;
    for (const auto& [node, device] :
         std::vector<std::pair<int, int>>{{0, 0}, {0, 1}, {1, 0}, {2, 0}, {2, 1}})
      layout.pipelines.push_back({{node, device, {{"llm", {}}}}});
    plan = place_by_hand(model, layout, {3, 2}, IdleDevices::left_out).value();
    IterationInput input;
    for (int s = 0; s < 5; ++s) input.samples.push_back(testing::sample(0, 0));
    input.microbatches = assign_by_count(plan, 5, 1);
    sound = plan_iteration(plan, std::move(input)).value();
  }

  std::vector<Fault> faults(const IterationPlan& iteration) const { return check(plan, iteration); }
  /// The first action of this kind in a device's list.
  static std::ptrdiff_t place(const std::vector<Action>& list, ActionKind kind) {
    const auto found = std::find_if(list.begin(), list.end(),
                                    [&](const Action& action) { return action.kind == kind; });
    REQUIRE(found != list.end());
    return found - list.begin();
  }
};

bool has(const std::vector<Fault>& faults, FaultKind kind, DeviceId device, ActionKind action) {
  return std::any_of(faults.begin(), faults.end(), [&](const Fault& fault) {
    return fault.kind == kind && fault.device == device &&
           fault.action.starts_with(std::string(to_string(action)) + " ");
  });
}

TEST_CASE("a tree's lists are sound, run, and end kind by kind", "[scheduler]") {
  const Trees trees;
  for (const ParameterGroup& group : trees.plan.groups)
    REQUIRE(group.order == SumOrder::tree_by_node);
  CHECK(trees.faults(trees.sound).empty());
  CHECK(simulate(trees.plan, trees.sound, {}).ok());
  const auto ends = [&](std::size_t device) {
    std::vector<ActionKind> list;
    for (const Action& action : trees.sound.actions[device])
      if (action.group.valid()) list.push_back(action.kind);
    return list;
  };
  const std::vector of_two{reduce_send,    reduce_send,   reduce_partial, reduce_partial,
                           reduce,         reduce,        reduce_relay,   reduce_relay,
                           reduce_receive, reduce_receive};
  for (const std::size_t device : {0u, 1u, 3u, 4u}) CHECK(ends(device) == of_two);
  // Alone on its node: it adds up nothing for others and hands nothing on.
  CHECK(ends(2) ==
        std::vector{reduce_send, reduce_send, reduce, reduce, reduce_receive, reduce_receive});
}

TEST_CASE("each rule about trees finds its planted fault", "[scheduler]") {
  const Trees trees;
  const DeviceId pair{0}, alone{2};
  for (const ActionKind kind : kSumActions) {
    CAPTURE(to_string(kind));
    auto left_out = trees.sound;
    auto& list = left_out.actions[pair.index()];
    const auto place = Trees::place(list, kind);
    const Action action = list[static_cast<std::size_t>(place)];
    list.erase(list.begin() + place);
    CHECK(has(trees.faults(left_out), FaultKind::missing, pair, kind));
    // What it adds would count twice; what it takes is there once.
    auto twice = trees.sound;
    auto& longer = twice.actions[pair.index()];
    longer.insert(longer.begin() + place, action);
    CHECK(has(trees.faults(twice), FaultKind::duplicate, pair, kind));
  }
  for (const ActionKind kind : {reduce_partial, reduce_relay}) {
    // On a device that has nobody beside it.
    auto elsewhere = trees.sound;
    auto& list = elsewhere.actions[alone.index()];
    Action action = list[static_cast<std::size_t>(Trees::place(list, reduce))];
    action.kind = kind;
    list.insert(list.begin() + Trees::place(list, reduce), action);
    CHECK(has(trees.faults(elsewhere), FaultKind::unknown, alone, kind));
    // By a device other than the one that the others send to.
    auto moved = trees.sound;
    auto& from = moved.actions[pair.index()];
    const auto place = Trees::place(from, kind);
    auto& to = moved.actions[alone.index()];
    to.insert(to.begin() + Trees::place(to, reduce), from[static_cast<std::size_t>(place)]);
    from.erase(from.begin() + place);
    CHECK(has(trees.faults(moved), FaultKind::missing, pair, kind));
    CHECK(has(trees.faults(moved), FaultKind::unknown, alone, kind));
  }
}

TEST_CASE("sums in another order than theirs would wait for each other, and are refused",
          "[scheduler]") {
  const Trees trees;
  for (std::size_t later = 1; later < kSumActions.size(); ++later)
    for (std::size_t earlier = 0; earlier < later; ++earlier) {
      CAPTURE(to_string(kSumActions[later]), to_string(kSumActions[earlier]));
      auto crossed = trees.sound;
      for (const std::size_t device : {0u, 1u, 3u, 4u}) {
        auto& list = crossed.actions[device];
        const auto from = list.begin() + Trees::place(list, kSumActions[earlier]);
        std::stable_partition(from, list.end(), [&](const Action& action) {
          return action.kind == kSumActions[later];
        });
      }
      const auto found = kinds(trees.faults(crossed));
      CHECK((found.contains(FaultKind::deadlock) || found.contains(FaultKind::dependency)));
    }
}

TEST_CASE("a layout that says chain has other lists than one that says tree", "[scheduler]") {
  Trees trees;
  for (ParameterGroup& group : trees.plan.groups) group.order = SumOrder::chain;
  const auto faults = trees.faults(trees.sound);
  CHECK(has(faults, FaultKind::unknown, DeviceId{0}, reduce_partial));
  CHECK(has(faults, FaultKind::unknown, DeviceId{0}, reduce_relay));
}

}  // namespace
}  // namespace troupe::scheduler
