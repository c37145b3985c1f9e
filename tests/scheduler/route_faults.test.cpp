// One planted fault for each rule of the checker about routes.

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <string>

#include "scheduler/check/check_plan.hpp"
#include "tests/scheduler/checked_faults.hpp"
#include "tests/scheduler/random_plans.hpp"

namespace troupe::scheduler {
namespace {

using testing::random_case;

/// A plan, and faults in it.
struct Planted {
  testing::RandomCase made;
  IterationPlan iteration;

  explicit Planted(testing::RandomCase planted)
      : made(std::move(planted)), iteration(plan_iteration(made.plan, made.input).value()) {}
  std::vector<Fault> faults() const { return check(made.plan, iteration); }
  bool finds(FaultKind kind, const std::string& why) const {
    return testing::finds(faults(), kind, why);
  }
};

TEST_CASE("each rule about routes finds its planted fault", "[scheduler][property]") {
  std::map<std::string, int> seen;
  for (std::uint32_t seed = 0; seed < 1500; ++seed) {
    auto made = random_case(seed);
    made.input.routes.pin = Route::gather_scatter;
    const Planted sound(made);
    const auto& messages = sound.iteration.messages;
    INFO("seed " << seed);
    REQUIRE(sound.faults().empty());
    const auto planted = [&](const std::string& rule, auto&& change, FaultKind kind,
                             const std::string& why) {
      auto bad = sound;
      change(bad.iteration);
      CHECK(bad.finds(kind, why));
      ++seen[rule];
    };
    for (std::size_t m = 0; m < messages.size(); ++m) {
      const Message& message = messages[m];
      const auto group = [&](StageId stage) {
        return made.plan.at(made.plan.at(stage).replica).group;
      };
      if (group(message.source.stage) == group(message.destination.stage)) {
        if (seen["inside"] > 50) continue;
        planted(
            "inside", [&](auto& plan) { plan.messages[m].route = Route::leader; },
            FaultKind::unknown, "inside a module group take no route");
        planted(
            "inside", [&](auto& plan) { plan.messages[m].relay = DeviceId{0}; }, FaultKind::unknown,
            "inside a module group take no route");
        continue;
      }
      const bool at_home = made.plan.at(message.source.stage).devices ==
                           made.plan.at(message.destination.stage).devices;
      if (at_home && seen["at home"] < 50)
        planted(
            "at home", [&](auto& plan) { plan.messages[m].route = Route::gather_scatter; },
            FaultKind::dependency, "where direct is due");
      if (!at_home && seen["other"] < 50)
        planted(
            "other", [&](auto& plan) { plan.messages[m].route = Route::leader; },
            FaultKind::dependency, "where gather-scatter is due");
      if (message.relay.valid() && seen["relay"] < 50) {
        planted(
            "relay", [&](auto& plan) { plan.messages[m].relay = {}; }, FaultKind::missing,
            "are to pass through device");
        planted(
            "relay", [&](auto& plan) { plan.messages[m].relay = DeviceId{9999}; },
            FaultKind::dependency, ", not 9999");
        planted(
            "relay",
            [&](auto& plan) {
              plan.messages[m].relay = made.plan.at(message.source.stage).devices.front();
            },
            FaultKind::dependency, "are to pass through device");
      }
      if (!message.relay.valid() && seen["no relay"] < 50)
        planted(
            "no relay", [&](auto& plan) { plan.messages[m].relay = DeviceId{0}; },
            FaultKind::unknown, "pass through a device for no reason");
    }
    if (sound.iteration.boundaries.empty() || seen["listed"] > 50) continue;
    planted(
        "listed", [](auto& plan) { plan.boundaries.pop_back(); }, FaultKind::missing,
        "lists no route of its boundary");
    planted(
        "listed", [](auto& plan) { plan.boundaries.push_back(plan.boundaries.front()); },
        FaultKind::duplicate, "the plan lists it twice");
    planted(
        "listed",
        [&](auto& plan) {
          plan.boundaries.push_back({made.plan.model.llm(), ModuleGroupId{0}, {}, false, {}});
        },
        FaultKind::unknown, "no rows of this iteration cross it");
  }
  for (const char* rule : {"inside", "at home", "other", "relay", "no relay", "listed"}) {
    CAPTURE(rule);
    CHECK(seen[rule] >= 20);
  }
}

}  // namespace
}  // namespace troupe::scheduler
