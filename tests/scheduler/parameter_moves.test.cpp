// Parameters of encoders that are in host memory while the llm computes: lists, times, memory and
// what the checker says of them.

#include "scheduler/iteration/parameter_actions.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/check/check_plan.hpp"
#include "scheduler/iteration/plan_iteration.hpp"
#include "scheduler/simulate/predicted_costs.hpp"
#include "scheduler/simulate/simulate_plan.hpp"
#include "tests/scheduler/checked_faults.hpp"
#include "tests/scheduler/example_models.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using testing::sample;
using testing::text_of;
using testing::vision_audio_llm;

ModelGraph giving_parameters(ModelGraph graph = vision_audio_llm()) {
  for (auto& module : graph.modules) module.parameters_in_host = module.kind != ModuleKind::llm;
  return graph;
}

/// Encoders on a device, the llm on the same or on another one.
struct Fixture {
  ParallelPlan plan;
  IterationInput input;

  explicit Fixture(int microbatches, int llm_device = 0, ModelGraph model = giving_parameters(),
                   int pictures = 1) {
    const HandLayout layout{
        {{{0,
           0,
           {{"vision", {}}, {"vision_projector", {}}, {"audio", {}}, {"audio_projector", {}}}},
          {0, llm_device, {{"llm", {}}}}}}};
    plan = place_by_hand(model, layout, {1, llm_device + 1}).value();
    for (int i = 0; i < microbatches; ++i) input.samples.push_back(sample(pictures, 0));
    input.microbatches = assign_by_count(plan, microbatches, microbatches);
    input.schedule = "three-phase";
  }
  IterationPlan made() const { return plan_iteration(plan, input).value(); }
};

/// Compute and moves of a list: `F0 B0` of the encoder, `f0 b0` of the llm; parameters of the
/// encoder go to the host, `P`, and to the device, `Q`; what it keeps of a part, `H0` and `D0`.
std::string told(const std::vector<Action>& list) {
  std::string text;
  for (const Action& action : list) {
    std::string word;
    if (moves_parameters(action.kind)) {
      word = action.kind == ActionKind::evict_parameters ? "P" : "Q";
    } else if (action.microbatch.valid()) {
      word = action.kind == ActionKind::forward   ? "F"
             : action.kind == ActionKind::offload ? "H"
             : action.kind == ActionKind::fetch   ? "D"
                                                  : "B";
      if (action.stage == StageId{1}) word[0] = word[0] == 'F' ? 'f' : 'b';
      word += std::to_string(action.microbatch.value);
    } else {
      continue;
    }
    text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

TEST_CASE("parameters of encoders are in host memory while the llm has their device",
          "[scheduler]") {
  const Fixture shared(2);
  const auto iteration = shared.made();
  CHECK(told(iteration.actions[0]) == "F0 F1 P f0 b0 f1 b1 Q B0 B1");
  CHECK(check(shared.plan, iteration).empty());
  // Rows leave first, and who waits for a gradient has moved its bytes before.
  const auto& list = iteration.actions[0];
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].kind == ActionKind::evict_parameters) CHECK(list[i - 1].kind == ActionKind::send);
    if (list[i].kind == ActionKind::fetch_parameters)
      CHECK(list[i + 1].kind == ActionKind::receive_gradient);
  }
  auto both = shared;
  both.input.offload_encoders = true;
  CHECK(told(both.made().actions[0]) == "F0 H0 F1 H1 P f0 b0 f1 b1 Q D0 B0 D1 B1");
  CHECK(check(both.plan, both.made()).empty());
  // One window after the other; between two of them the encoder goes on.
  Fixture windows(4);
  windows.input.max_in_flight = {2, 0};
  CHECK(told(windows.made().actions[0]) ==
        "F0 F1 P f0 b0 f1 b1 Q B0 B1 F2 F3 P f2 b2 f3 b3 Q B2 B3");
  CHECK(check(windows.plan, windows.made()).empty());
}

TEST_CASE("parameters move where an llm has the room alone", "[scheduler]") {
  CHECK(told(Fixture(2, 1).made().actions[0]) == "F0 F1 B0 B1");
  CHECK(told(Fixture(2, 0, vision_audio_llm()).made().actions[0]) == "F0 F1 f0 b0 f1 b1 B0 B1");
  // Frozen ones come back for the next step.
  auto frozen = giving_parameters();
  for (auto& module : frozen.modules) module.freeze = module.kind != ModuleKind::llm;
  const Fixture kept(2, 0, frozen);
  CHECK(told(kept.made().actions[0]) == "F0 F1 P f0 b0 f1 b1 Q");
  CHECK(check(kept.plan, kept.made()).empty());
  // Between two windows they move when the llm has drained the first.
  Fixture windows(4, 0, frozen);
  windows.input.max_in_flight = {2, 0};
  CHECK(told(windows.made().actions[0]) == "F0 F1 P f0 b0 f1 b1 Q F2 F3 P f2 b2 f3 b3 Q");
  CHECK(check(windows.plan, windows.made()).empty());
  // What a device promises holds of text alone too.
  const Fixture text(2, 0, giving_parameters(), 0);
  CHECK(told(text.made().actions[0]) == "P f0 b0 f1 b1 Q");
  CHECK(check(text.plan, text.made()).empty());
}

TEST_CASE("parameters that move take the time of their bytes and leave their room", "[scheduler]") {
  SimulationCosts costs;
  costs.task_ms = [](StageId, const auto&, TaskKind kind) {
    return kind == TaskKind::backward ? 2.0 : 1.0;
  };
  costs.activation_bytes = [](StageId stage, const auto&) { return stage.value == 0 ? 1.0 : 4.0; };
  costs.state_bytes = [](StageId stage) { return stage.value == 0 ? 10.0 : 20.0; };
  costs.parameter_bytes = [](StageId stage) {
    return stage.value == 0 ? StageParameters{6, 4} : StageParameters{};
  };
  costs.bytes_per_element = 0;
  costs.host = {0.5, 1e-6};  // A byte per millisecond.
  const Fixture shared(2);
  const auto step = simulate(shared.plan, shared.made(), costs).value();
  // Two stages of two microbatches of 3 ms; 4 bytes that train go, 6 come.
  CHECK(step.step_ms == Approx(12 + 4.5 + 6.5));
  CHECK(step.bubble == Approx(1 - 12 / 23.0));
  // With its two parts the encoder has 32 bytes; a part of the llm stands in place of parameters.
  CHECK(step.peak_memory_bytes == std::vector<double>{30 + 2});
  CHECK(step.peak_host_bytes == std::vector<double>{6});
  const Fixture plain(2, 0, vision_audio_llm());
  CHECK(simulate(plain.plan, plain.made(), costs).value().peak_memory_bytes ==
        std::vector<double>{30 + 2 + 4});
  // In the second window of a step nothing has changed that was copied in the first.
  Fixture windows(4);
  windows.input.max_in_flight = {2, 0};
  const auto longer = simulate(windows.plan, windows.made(), costs).value();
  CHECK(longer.step_ms == Approx(24 + 4.5 + 2 * 6.5));
  CHECK(longer.peak_host_bytes == std::vector<double>{6});
}

TEST_CASE("what of parameters is in host memory follows from the layout", "[scheduler]") {
  // The encoders have 99 elements.
  const Fixture shared(1);
  for (const auto& [dtype, each] :
       {std::pair{Dtype::fp32, 4}, std::pair{Dtype::bf16, 2}, std::pair{Dtype::fp64, 8}}) {
    PredictionOptions options;
    options.dtype = dtype;
    const auto parameters = stage_parameters_in_host(shared.plan, options);
    REQUIRE(parameters.size() == 2);
    CHECK(parameters[0].all == 99 * each);
    CHECK(parameters[0].trained == 99 * each);
    CHECK(parameters[1].all == 0);
    CHECK(host_states(shared.plan, options)[0].parameters == 99 * each);
    CHECK(host_states(shared.plan, options)[0].bytes == 0);
  }
  auto frozen = giving_parameters();
  for (auto& module : frozen.modules) module.freeze = module.kind == ModuleKind::encoder;
  const auto part = stage_parameters_in_host(Fixture(1, 0, frozen).plan, {})[0];
  CHECK(part.all == 99 * 4);
  CHECK(part.trained > 0);
  CHECK(part.trained < part.all);
  // Encoders with a device of their own keep theirs.
  CHECK(host_states(Fixture(1, 1).plan, {})[0].parameters == 0);
}

/// A sound plan to plant faults in.
struct Planted {
  Fixture fixture = Fixture(2);
  IterationPlan iteration = fixture.made();
  std::vector<Action>& list = iteration.actions[0];

  std::size_t place(ActionKind kind, int stage = 0) const {
    const auto found = std::ranges::find_if(list, [&](const Action& action) {
      return action.kind == kind && (!action.stage.valid() || action.stage == StageId{stage});
    });
    REQUIRE(found != list.end());
    return static_cast<std::size_t>(found - list.begin());
  }
  void erase(std::size_t at) { list.erase(list.begin() + static_cast<std::ptrdiff_t>(at)); }
  void insert(std::size_t at, const Action& action) {
    list.insert(list.begin() + static_cast<std::ptrdiff_t>(at), action);
  }
  /// Exactly one fault, of this kind and about this action.
  void has_one(FaultKind kind, const std::string& action) const {
    const auto faults = check(fixture.plan, iteration);
    INFO(text_of(faults));
    REQUIRE(faults.size() == 1);
    CHECK(faults[0].kind == kind);
    CHECK(faults[0].action.starts_with(action));
  }
  bool finds(FaultKind kind, const std::string& action) const {
    return std::ranges::any_of(check(fixture.plan, iteration), [&](const Fault& fault) {
      return fault.kind == kind && fault.action.starts_with(action);
    });
  }
};

TEST_CASE("each rule about parameters in host memory finds its planted fault", "[scheduler]") {
  using enum ActionKind;
  {
    Planted bad;  // They never leave the llm their room.
    bad.erase(bad.place(fetch_parameters));
    bad.erase(bad.place(evict_parameters));
    bad.has_one(FaultKind::memory, "forward stage 1");
  }
  {
    Planted bad;  // They leave too late.
    const Action move = bad.list[bad.place(evict_parameters)];
    bad.erase(bad.place(evict_parameters));
    bad.insert(bad.place(forward, 1) + 1, move);
    bad.has_one(FaultKind::memory, "forward stage 1");
  }
  {
    Planted bad;  // They never come back.
    bad.erase(bad.place(fetch_parameters));
    CHECK(bad.finds(FaultKind::dependency, "backward stage 0"));
    CHECK(bad.finds(FaultKind::missing, "fetch_parameters stage 0"));
  }
  for (const ActionKind kind : {evict_parameters, fetch_parameters}) {
    Planted bad;
    bad.insert(bad.place(kind), Action(bad.list[bad.place(kind)]));
    bad.has_one(FaultKind::duplicate, std::string(to_string(kind)) + " stage 0");
  }
  {
    Planted bad;  // The llm keeps what it has.
    Action move = bad.list[bad.place(evict_parameters)];
    move.stage = StageId{1};
    bad.insert(bad.place(evict_parameters), move);
    bad.has_one(FaultKind::unknown, "evict_parameters stage 1");
  }
  {
    Planted bad;  // Who saves the state would read what is away.
    Action move = bad.list[bad.place(evict_parameters)];
    bad.insert(bad.list.size(), move);
    bad.has_one(FaultKind::dependency, "evict_parameters stage 0");
  }
  {
    Planted bad;  // A plan that knows nothing of it.
    bad.iteration = Fixture(2, 0, vision_audio_llm()).made();
    bad.has_one(FaultKind::memory, "forward stage 1");
  }
}

}  // namespace
}  // namespace troupe::scheduler
