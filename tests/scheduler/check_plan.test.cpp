#include "scheduler/check/check_plan.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <random>
#include <set>

#include "tests/scheduler/checked_faults.hpp"
#include "tests/scheduler/random_plans.hpp"

namespace troupe::scheduler {
namespace {

using testing::kinds;
using testing::random_case;
using testing::sample;
using testing::text_llm;
using testing::text_of;
using testing::vision_audio_llm;

/// Two llm stages on two devices, two text microbatches.
struct TwoStages {
  ParallelPlan plan = place_by_hand(text_llm(2), {}, {2, 1}).value();
  IterationPlan iteration;

  TwoStages() {
    IterationInput input;
    input.samples = {sample(0, 0), sample(0, 0)};
    input.microbatches = assign_by_count(plan, 2, 2);
    iteration = plan_iteration(plan, input).value();
  }
  std::vector<Action>& device(std::size_t index) { return iteration.actions[index]; }
  std::size_t find(std::size_t device, ActionKind kind) const {
    const auto& list = iteration.actions[device];
    const auto found = std::find_if(list.begin(), list.end(),
                                    [&](const Action& action) { return action.kind == kind; });
    return static_cast<std::size_t>(found - list.begin());
  }
};

TEST_CASE("every schedule over random layouts, shapes and deferrals is sound",
          "[scheduler][property]") {
  for (std::uint32_t seed = 0; seed < 3000; ++seed) {
    const auto random = random_case(seed);
    const auto iteration = plan_iteration(random.plan, random.input);
    INFO("seed " << seed << " " << random.input.schedule.name);
    REQUIRE(iteration.ok());
    const auto faults = check(random.plan, iteration.value());
    INFO(text_of(faults));
    REQUIRE(faults.empty());
  }
}

TEST_CASE("an action left out is missing, listed twice a duplicate", "[scheduler][property]") {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    auto random = random_case(seed);
    auto iteration = plan_iteration(random.plan, random.input).value();
    std::mt19937 chance(seed);
    auto& list = iteration.actions[chance() % iteration.actions.size()];
    const auto place = static_cast<std::ptrdiff_t>(chance() % list.size());
    const Action action = list[static_cast<std::size_t>(place)];
    INFO("seed " << seed << " " << describe(random.plan, action));
    list.erase(list.begin() + place);
    CHECK(kinds(check(random.plan, iteration)) == std::set{FaultKind::missing});
    list.insert(list.begin() + place, 2, action);
    CHECK(kinds(check(random.plan, iteration)) == std::set{FaultKind::duplicate});
  }
}

TEST_CASE("an action on a foreign device is unknown there and missing at home", "[scheduler]") {
  TwoStages two;
  two.device(1).push_back(two.device(0).back());
  two.device(0).pop_back();
  CHECK(kinds(check(two.plan, two.iteration)) == std::set{FaultKind::unknown, FaultKind::missing});
}

TEST_CASE("compute before its receive and a send before its compute are misplaced", "[scheduler]") {
  TwoStages late_receive;
  auto& list = late_receive.device(1);
  const auto receive = late_receive.find(1, ActionKind::receive);
  std::swap(list[receive], list[receive + 1]);
  CHECK(kinds(check(late_receive.plan, late_receive.iteration)) == std::set{FaultKind::dependency});

  TwoStages early_send;
  const auto send = early_send.find(0, ActionKind::send);
  std::swap(early_send.device(0)[send], early_send.device(0)[send - 1]);
  CHECK(kinds(check(early_send.plan, early_send.iteration)) == std::set{FaultKind::dependency});
}

TEST_CASE("two devices that wait for each other are a deadlock", "[scheduler]") {
  // Device 0 waits for the gradient of microbatch 0 before it sends the rows of microbatch 1;
  // device 1 runs both forwards before the first backward.
  TwoStages two;
  const auto by_microbatch = [&](const Action& action) {
    if (action.message.valid())
      return two.iteration.messages[action.message.index()].source.microbatch.value;
    return action.microbatch.value;
  };
  const auto is_tail = [](const Action& action) {
    return !action.message.valid() && !action.microbatch.valid();
  };
  const auto is_gradient = [](const Action& action) {
    return action.kind == ActionKind::backward || action.kind == ActionKind::send_gradient ||
           action.kind == ActionKind::receive_gradient;
  };
  std::stable_sort(two.device(0).begin(), two.device(0).end(), [&](auto& a, auto& b) {
    return std::pair(is_tail(a), by_microbatch(a)) < std::pair(is_tail(b), by_microbatch(b));
  });
  std::stable_sort(two.device(1).begin(), two.device(1).end(), [&](auto& a, auto& b) {
    return std::pair(is_tail(a), is_gradient(a)) < std::pair(is_tail(b), is_gradient(b));
  });
  two.iteration.max_in_flight = {2, 2};
  const auto faults = check(two.plan, two.iteration);
  INFO(text_of(faults));
  CHECK(kinds(faults) == std::set{FaultKind::deadlock});
  CHECK(faults.size() == 2);
}

TEST_CASE("a reduction before the last backward or after commit is found", "[scheduler]") {
  TwoStages two;
  auto& list = two.device(0);
  const auto reduce = two.find(0, ActionKind::reduce);
  const Action action = list[reduce];
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(reduce));
  list.insert(list.begin(), action);
  CHECK(kinds(check(two.plan, two.iteration)) == std::set{FaultKind::dependency});
  list.erase(list.begin());
  list.push_back(action);
  CHECK(kinds(check(two.plan, two.iteration)) == std::set{FaultKind::dependency});
}

TEST_CASE("more in flight than promised is a memory fault", "[scheduler][property]") {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    auto random = random_case(seed);
    auto iteration = plan_iteration(random.plan, random.input).value();
    for (auto& most : iteration.max_in_flight) {
      if (most == 0) continue;
      --most;
      CHECK(kinds(check(random.plan, iteration)) == std::set{FaultKind::memory});
      ++most;
    }
  }
}

TEST_CASE("messages that lose, repeat or invent rows are found", "[scheduler][property]") {
  int tried = 0;
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    const auto random = random_case(seed);
    const auto sound = plan_iteration(random.plan, random.input).value();
    if (sound.messages.empty()) continue;
    ++tried;
    std::mt19937 chance(seed);
    const auto place = chance() % sound.messages.size();

    auto planted = sound;
    planted.messages[place].samples.pop_back();
    CHECK(kinds(check(random.plan, planted)).contains(FaultKind::missing));

    planted = sound;
    planted.messages[place].samples.push_back(planted.messages[place].samples.back());
    CHECK(kinds(check(random.plan, planted)).contains(FaultKind::duplicate));

    planted = sound;
    planted.messages[place].source.microbatch = MicrobatchId{99};
    CHECK(kinds(check(random.plan, planted)).contains(FaultKind::unknown));

    planted = sound;
    planted.messages[place].rows += 1;
    CHECK_FALSE(check(random.plan, planted).empty());

    planted = sound;
    planted.messages[place].has_backward ^= true;
    CHECK_FALSE(check(random.plan, planted).empty());
  }
  CHECK(tried > 100);
}

TEST_CASE("a plan whose shape does not fit its layout is refused at once", "[scheduler]") {
  TwoStages two;
  two.iteration.actions.pop_back();
  CHECK(kinds(check(two.plan, two.iteration)) == std::set{FaultKind::missing});
  TwoStages bad_sample;
  bad_sample.iteration.microbatches[0][0].parts[0].samples[0] = 7;
  CHECK(kinds(check(bad_sample.plan, bad_sample.iteration)) ==
        std::set{FaultKind::unknown, FaultKind::missing});
}

}  // namespace
}  // namespace troupe::scheduler
