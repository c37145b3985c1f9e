#include "scheduler/iteration/offload_actions.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/check/check_plan.hpp"
#include "scheduler/iteration/plan_iteration.hpp"
#include "scheduler/simulate/simulate_plan.hpp"
#include "tests/scheduler/checked_faults.hpp"
#include "tests/scheduler/example_models.hpp"

namespace troupe::scheduler {
namespace {

using testing::sample;
using testing::text_of;
using testing::vision_audio_llm;

/// Encoders on a device, the llm on the same or on another one; a picture in each microbatch.
struct Fixture {
  ParallelPlan plan;
  IterationInput input;

  explicit Fixture(int microbatches, int llm_device = 0, ModelGraph model = vision_audio_llm()) {
    const HandLayout layout{
        {{{0,
           0,
           {{"vision", {}}, {"vision_projector", {}}, {"audio", {}}, {"audio_projector", {}}}},
          {0, llm_device, {{"llm", {}}}}}}};
    plan = place_by_hand(model, layout, {1, llm_device + 1}).value();
    for (int i = 0; i < microbatches; ++i) input.samples.push_back(sample(1, 0));
    input.microbatches = assign_by_count(plan, microbatches, microbatches);
    input.schedule = "three-phase";
    input.offload_encoders = true;
  }
  IterationPlan made() const { return plan_iteration(plan, input).value(); }
};

/// Compute and moves of a list: `F0 B0` of the encoder, `f0 b0` of the llm, `H0` to the host and
/// `D0` to the device.
std::string told(const std::vector<Action>& list) {
  std::string text;
  for (const Action& action : list) {
    if (!action.microbatch.valid()) continue;
    std::string word = action.kind == ActionKind::forward   ? "F"
                       : action.kind == ActionKind::offload ? "H"
                       : action.kind == ActionKind::fetch   ? "D"
                                                            : "B";
    if (action.stage == StageId{1}) word[0] = word[0] == 'F' ? 'f' : 'b';
    text += (text.empty() ? "" : " ") + word + std::to_string(action.microbatch.value);
  }
  return text;
}

TEST_CASE("what encoders keep is in host memory while the llm has their device", "[scheduler]") {
  const Fixture shared(2);
  const auto iteration = shared.made();
  CHECK(told(iteration.actions[0]) == "F0 H0 F1 H1 f0 b0 f1 b1 D0 B0 D1 B1");
  CHECK(check(shared.plan, iteration).empty());
  // Rows leave first, and who waits for a gradient has moved its bytes before.
  const auto& list = iteration.actions[0];
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].kind == ActionKind::offload) CHECK(list[i - 1].kind == ActionKind::send);
    if (list[i].kind == ActionKind::fetch) CHECK(list[i + 1].kind == ActionKind::receive_gradient);
  }
  auto plain = shared;
  plain.input.offload_encoders = false;
  CHECK(told(plain.made().actions[0]) == "F0 F1 f0 b0 f1 b1 B0 B1");
  // One window after the other.
  Fixture windows(4);
  windows.input.max_in_flight = {2, 0};
  CHECK(told(windows.made().actions[0]) ==
        "F0 H0 F1 H1 f0 b0 f1 b1 D0 B0 D1 B1 F2 H2 F3 H3 f2 b2 f3 b3 D2 B2 D3 B3");
}

TEST_CASE("nothing is moved that nobody would have the memory of", "[scheduler]") {
  // On a device of its own an encoder has others of its microbatches between.
  CHECK(told(Fixture(1, 1).made().actions[0]) == "F0 B0");
  CHECK(told(Fixture(2, 1).made().actions[0]) == "F0 H0 F1 H1 D0 B0 D1 B1");
  CHECK(told(Fixture(1).made().actions[0]) == "F0 H0 f0 b0 D0 B0");
  // Without a backward nothing is kept.
  auto frozen = vision_audio_llm();
  for (auto& module : frozen.modules) module.freeze = module.kind != ModuleKind::llm;
  CHECK(told(Fixture(2, 0, frozen).made().actions[0]) == "F0 F1 f0 b0 f1 b1");
}

TEST_CASE("moves take the time and the room of their bytes", "[scheduler]") {
  const Fixture shared(2);
  SimulationCosts costs;
  costs.task_ms = [](StageId, const auto&, TaskKind kind) {
    return kind == TaskKind::backward ? 2.0 : 1.0;
  };
  costs.activation_bytes = [](StageId stage, const auto&) { return stage.value == 0 ? 3.0 : 4.0; };
  costs.offloaded_bytes = [](StageId, const auto&) { return 2.0; };
  costs.bytes_per_element = 0;
  costs.host = {0.5, 1e-6};  // A byte per millisecond: a move takes 2.5.
  const auto step = simulate(shared.plan, shared.made(), costs).value();
  // Two stages of two microbatches of 3 ms, and four moves.
  CHECK(step.step_ms == Catch::Approx(12 + 4 * 2.5));
  CHECK(step.bubble == Catch::Approx(1 - 12.0 / 22));
  // The llm's part, and of either part of the encoder what stays: an output.
  CHECK(step.peak_memory_bytes == std::vector<double>{4 + 1 + 1});
  CHECK(step.peak_host_bytes == std::vector<double>{4});
  auto plain = shared;
  plain.input.offload_encoders = false;
  const auto held = simulate(plain.plan, plain.made(), costs).value();
  CHECK(held.step_ms == 12);
  CHECK(held.peak_memory_bytes == std::vector<double>{4 + 3 + 3});
  CHECK(held.peak_host_bytes == std::vector<double>{0});
  costs.host.gigabytes_per_s = -1;
  CHECK_FALSE(simulate(shared.plan, shared.made(), costs).ok());
}

/// A sound plan to plant faults in.
struct Planted {
  Fixture fixture;
  IterationPlan iteration = fixture.made();
  std::vector<Action>& list = iteration.actions[0];

  explicit Planted(Fixture made = Fixture(2)) : fixture(std::move(made)) {}

  std::size_t place(ActionKind kind, int stage = 0, int microbatch = 0) const {
    const auto found = std::ranges::find_if(list, [&](const Action& action) {
      return action.kind == kind && action.stage == StageId{stage} &&
             action.microbatch == MicrobatchId{microbatch};
    });
    REQUIRE(found != list.end());
    return static_cast<std::size_t>(found - list.begin());
  }
  /// Exactly one fault, of this kind and about this action.
  void has_one(FaultKind kind, const std::string& action) const {
    const auto faults = check(fixture.plan, iteration);
    INFO(text_of(faults));
    REQUIRE(faults.size() == 1);
    CHECK(faults[0].kind == kind);
    CHECK(faults[0].action.starts_with(action + " stage"));
  }
  void erase(std::size_t at) { list.erase(list.begin() + static_cast<std::ptrdiff_t>(at)); }
  void insert(std::size_t at, Action action) {
    list.insert(list.begin() + static_cast<std::ptrdiff_t>(at), action);
  }
  /// Moves an action to behind another one.
  void put_behind(std::size_t action, std::size_t other) {
    const auto begin = list.begin();
    std::rotate(begin + static_cast<std::ptrdiff_t>(action),
                begin + static_cast<std::ptrdiff_t>(action) + 1,
                begin + static_cast<std::ptrdiff_t>(other) + 1);
  }
};

TEST_CASE("each rule about what is offloaded finds its planted fault", "[scheduler]") {
  using enum ActionKind;
  {
    Planted bad;  // A backward would find nothing.
    bad.erase(bad.place(fetch));
    bad.has_one(FaultKind::missing, "fetch");
  }
  {
    Planted bad;
    bad.erase(bad.place(offload));
    bad.has_one(FaultKind::missing, "offload");
  }
  for (const ActionKind kind : {offload, fetch}) {
    Planted bad;
    bad.insert(bad.place(kind), bad.list[bad.place(kind)]);
    bad.has_one(FaultKind::duplicate, std::string(to_string(kind)));
  }
  {
    Planted bad;
    bad.put_behind(bad.place(fetch), bad.place(backward));
    bad.has_one(FaultKind::dependency, "backward");
  }
  {
    Planted bad;
    bad.put_behind(bad.place(offload), bad.place(fetch));
    bad.has_one(FaultKind::dependency, "fetch");
  }
  {
    Planted bad;  // Before the forward, but behind what another one sent.
    bad.put_behind(bad.place(forward, 0, 0), bad.place(forward, 0, 1));
    const auto faults = check(bad.fixture.plan, bad.iteration);
    CHECK(std::ranges::any_of(faults, [](const Fault& fault) {
      return fault.kind == FaultKind::dependency && fault.action.starts_with("offload");
    }));
  }
  for (const ActionKind kind : {offload, fetch}) {
    Planted bad;  // The llm keeps what it has.
    Action action = bad.list[bad.place(forward, 1)];
    action.kind = kind;
    bad.insert(bad.place(forward, 1) + 1, action);
    bad.has_one(FaultKind::unknown, std::string(to_string(kind)));
  }
  {
    auto frozen = vision_audio_llm();
    for (auto& module : frozen.modules) module.freeze = module.kind != ModuleKind::llm;
    Planted bad(Fixture(2, 0, frozen));  // What has no backward keeps nothing.
    Action action = bad.list[bad.place(forward)];
    action.kind = offload;
    bad.insert(bad.place(forward) + 1, action);
    bad.has_one(FaultKind::unknown, "offload");
  }
}

TEST_CASE("two schedules have phases", "[scheduler]") {
  for (const auto& name : schedule_names())
    CHECK(has_phases(name) == (name == "dip" || name == "three-phase"));
  auto own = std::make_shared<OwnSchedule>();
  own->name = "three-phase";
  CHECK_FALSE(has_phases(Schedule(std::shared_ptr<const OwnSchedule>(own))));
}

}  // namespace
}  // namespace troupe::scheduler
