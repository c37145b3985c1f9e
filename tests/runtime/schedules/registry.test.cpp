#include "runtime/schedules/registry.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <optional>

#include "runtime/plugins/user_calls.hpp"

namespace troupe::schedules {
namespace {

/// Each task of a graph of one device, in the order in which they were added.
Result<DeviceOrders> as_added(const TaskGraph& graph, const std::vector<std::int32_t>&) {
  DeviceOrders orders(1);
  for (std::size_t task = 0; task < graph.tasks.size(); ++task)
    orders[0].push_back(static_cast<std::int32_t>(task));
  return orders;
}

TEST_CASE("an added schedule is found by its name, and makes the orders", "[schedules]") {
  REQUIRE(
      register_schedule({.name = "as-added", .runs_parts_apart = true, .order = as_added}).ok());
  const auto names = schedule_names();
  CHECK(names.back() == "as-added");
  CHECK(std::ranges::count(names, "zero-bubble") == 1);

  const auto found = find_schedule("as-added");
  CHECK(found.name == "as-added");
  CHECK(scheduler::runs_parts_apart(found));
  CHECK_FALSE(scheduler::splits_weight_gradient(found));
  TaskGraph graph;
  graph.stages = {{}};
  const auto backward = graph.add({TaskKind::backward, 0, 0, 0, 2});
  const auto forward = graph.add({TaskKind::forward});
  graph.depend(backward, forward);
  graph.finish();
  const auto made = scheduler::make_schedule(graph, found);
  REQUIRE_FALSE(made.ok());  // The backward stands before the forward that it needs.
  CHECK(made.error().message.starts_with("schedule 'as-added' waits for ever: "));
}

TEST_CASE("while a schedule of one's own orders, its name tells who does not return",
          "[schedules][errors]") {
  std::optional<plugins::UserCall> seen;
  const auto look = [&seen](const TaskGraph& graph, const std::vector<std::int32_t>& most) {
    seen = plugins::oldest_user_call();
    return as_added(graph, most);
  };
  REQUIRE(register_schedule({.name = "looks", .order = look}).ok());
  TaskGraph graph;
  graph.stages = {{}};
  const auto forward = graph.add({TaskKind::forward});
  const auto backward = graph.add({TaskKind::backward, 0, 0, 0, 2});
  graph.depend(backward, forward);
  graph.finish();
  CHECK(scheduler::make_schedule(graph, find_schedule("looks")).ok());
  REQUIRE(seen);
  CHECK(seen->function == "`order` of schedule 'looks'");
  CHECK_FALSE(plugins::oldest_user_call());
}

TEST_CASE("names that are taken, no names, and schedules without an order are refused",
          "[schedules][errors]") {
  CHECK_FALSE(register_schedule({.name = "gpipe", .order = as_added}).ok());
  CHECK_FALSE(register_schedule({.name = "Mine", .order = as_added}).ok());
  CHECK_FALSE(register_schedule({.name = "without-order", .order = nullptr}).ok());
  REQUIRE(register_schedule({.name = "twice", .order = as_added}).ok());
  CHECK(register_schedule({.name = "twice", .order = as_added}).error().message ==
        "schedule 'twice' is there already");
}

TEST_CASE("other names are those of built-in schedules, or refused where a step is ordered",
          "[schedules][errors]") {
  CHECK_FALSE(find_schedule("gpipe").own);
  TaskGraph graph;
  graph.finish();
  CHECK(scheduler::make_schedule(graph, find_schedule("1f2b"))
            .error()
            .message.starts_with("no schedule is called '1f2b'"));
}

}  // namespace
}  // namespace troupe::schedules
