// Moments that are in host memory but for their update: lists, times, memory and what the checker
// says of them.

#include "runtime/vocabulary/host_state.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "scheduler/check/check_plan.hpp"
#include "scheduler/iteration/plan_iteration.hpp"
#include "scheduler/simulate/predicted_costs.hpp"
#include "scheduler/simulate/simulate_plan.hpp"
#include "scheduler/state/standby_holders.hpp"
#include "tests/scheduler/checked_faults.hpp"
#include "tests/scheduler/random_plans.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using testing::sample;
using testing::text_of;
using testing::vision_audio_llm;

/// Encoders of 9 layers with 99 elements, of which the largest has 13, have their moments in host
/// memory.
ModelGraph with_host_state(ModelGraph graph = vision_audio_llm()) {
  for (auto& module : graph.modules)
    module.moments_in_host = module.kind != ModuleKind::llm && !module.freeze;
  return graph;
}

/// Encoders on a device, the llm on the same or on another one; one picture.
ParallelPlan placed(const ModelGraph& model, int llm_device = 0) {
  const HandLayout layout{
      {{{0, 0, {{"vision", {}}, {"vision_projector", {}}, {"audio", {}}, {"audio_projector", {}}}},
        {0, llm_device, {{"llm", {}}}}}}};
  return place_by_hand(model, layout, {1, llm_device + 1}).value();
}

IterationPlan planned(const ParallelPlan& plan) {
  IterationInput input;
  input.samples.push_back(sample(1, 0));
  input.microbatches = assign_by_count(plan, 1, 1);
  return plan_iteration(plan, std::move(input)).value();
}

std::size_t place_of(const std::vector<Action>& list, ActionKind kind, GroupId group = {}) {
  const auto found = std::ranges::find_if(
      list, [&](const Action& action) { return action.kind == kind && action.group == group; });
  REQUIRE(found != list.end());
  return static_cast<std::size_t>(found - list.begin());
}

/// Behind commit: `D3 O3 H3` of a group, `O` of a stage's others; `-D3` of a standby holder.
std::string tail_of(const std::vector<Action>& list) {
  std::string text;
  for (std::size_t i = place_of(list, ActionKind::commit) + 1; i < list.size(); ++i) {
    const Action& action = list[i];
    text += text.empty() ? "" : " ";
    text += action.stage.valid() ? "" : "-";
    text += action.kind == ActionKind::fetch_state     ? "D"
            : action.kind == ActionKind::offload_state ? "H"
                                                       : "O";
    if (action.group.valid()) text += std::to_string(action.group.value);
  }
  return text;
}

TEST_CASE("moments in host memory come for their update, one group at a time", "[scheduler]") {
  const auto plan = placed(with_host_state());
  const auto iteration = planned(plan);
  std::string expected;
  for (const char* group : {"0", "1", "2", "3", "4", "5", "6", "7", "8"})
    expected += std::string("D") + group + " O" + group + " H" + group + " ";
  CHECK(tail_of(iteration.actions[0]) == expected + "O");  // Of the llm.
  CHECK(check(plan, iteration).empty());
  CHECK(tail_of(planned(placed(vision_audio_llm())).actions[0]) == "O O");
  // Nothing of what does not train.
  auto frozen = vision_audio_llm();
  for (auto& module : frozen.modules) module.freeze = module.kind == ModuleKind::encoder;
  CHECK(tail_of(planned(placed(with_host_state(frozen))).actions[0]) == "D0 O0 H0 D1 O1 H1 O");
}

TEST_CASE("a standby holder's moments are in host memory too", "[scheduler]") {
  auto model = with_host_state(testing::text_llm(2));
  model.modules[0].moments_in_host = true;
  const auto plan =
      add_standbys(place_by_hand(model, {}, {2, 1}).value(), {1, Dtype::fp32}).value();
  IterationInput input;
  input.samples.push_back(sample(0, 0));
  input.microbatches = assign_by_count(plan, 1, 1);
  const auto iteration = plan_iteration(plan, std::move(input)).value();
  CHECK(tail_of(iteration.actions[0]) == "D0 O0 H0 -D1 -O1 -H1");
  CHECK(tail_of(iteration.actions[1]) == "D1 O1 H1 -D0 -O0 -H0");
  CHECK(check(plan, iteration).empty());
  const auto& list = iteration.actions[0];
  CHECK(describe(plan, list[place_of(list, ActionKind::fetch_state, GroupId{1})]) ==
        "fetch_state on standby group llm.layers.1");
}

TEST_CASE("what several modules share is in host memory where all of them say so", "[scheduler]") {
  auto graph = vision_audio_llm();
  const TiedParameter tied{"shared", {{ModuleId{0}, 0}, {ModuleId{2}, 0}}, 40};
  graph.modules[0].moments_in_host = true;
  CHECK_FALSE(moments_in_host(graph, tied));
  graph.modules[2].moments_in_host = true;
  CHECK(moments_in_host(graph, tied));
  auto model = testing::text_llm(3);
  model.tied = {{"llm.embed", {{ModuleId{0}, 0}, {ModuleId{0}, 2}}, 40}};
  model.modules[0].moments_in_host = true;
  // A device that uses it twice has it once.
  const auto plan = place_by_hand(model, {}, {1, 1}).value();
  IterationInput input;
  input.microbatches = assign_by_count(plan, 0, 1);
  const auto iteration = plan_iteration(plan, std::move(input)).value();
  CHECK(std::ranges::count(iteration.actions[0], ActionKind::fetch_state, &Action::kind) == 4);
  CHECK(check(plan, iteration).empty());
}

TEST_CASE("moments that come take the time and the room of their bytes", "[scheduler]") {
  const auto plan = placed(with_host_state());
  const auto iteration = planned(plan);
  SimulationCosts costs;
  costs.task_ms = [](StageId, const auto&, TaskKind) { return 1.0; };
  costs.state_bytes = [](StageId stage) { return stage.value == 0 ? 100.0 : 50.0; };
  costs.optimizer_ms = [](StageId stage) { return stage.value == 0 ? 1000.0 : 1.0; };
  costs.moment_bytes = [](GroupId group, StageId) { return group.value == 3 ? 16.0 : 8.0; };
  costs.group_optimizer_ms = [](GroupId, StageId) { return 0.25; };
  costs.activation_bytes = [](StageId, const auto&) { return 4.0; };
  costs.bytes_per_element = 0;
  costs.host = {0.5, 1e-6};  // A byte per millisecond.
  const auto step = simulate(plan, iteration, costs).value();
  // Two stages forward and backward; eight groups of 8 bytes, one of 16: moves of 8.5 and 16.5 both
  // ways; nine updates and the llm's.
  CHECK(step.step_ms == Approx(4 + 2 * (8 * 8.5 + 16.5) + 9 * 0.25 + 1));
  CHECK(step.bubble == Approx(1 - (4 + 9 * 0.25 + 1) / step.step_ms));
  CHECK(step.stage_ms[0] == Approx(2 + 9 * 0.25));
  CHECK(step.peak_memory_bytes == std::vector<double>{150 + 16});
  CHECK(step.peak_activation_bytes == std::vector<double>{4 + 4});
  CHECK(step.peak_host_bytes == std::vector<double>{8 * 8 + 16});
  // Activations that outweigh them do so as if they were not there.
  costs.activation_bytes = [](StageId, const auto&) { return 40.0; };
  CHECK(simulate(plan, iteration, costs).value().peak_memory_bytes ==
        std::vector<double>{150 + 80});
}

TEST_CASE("what a device keeps is less by moments that are in host memory", "[scheduler]") {
  // Per element: parameter and gradient, of 4 and 4, 2 and 4, 8 and 8 bytes; the rest is away.
  const auto plan = placed(with_host_state());
  for (const auto& [dtype, here, away] :
       {std::tuple{Dtype::fp32, 8, 8}, std::tuple{Dtype::bf16, 6, 12},
        std::tuple{Dtype::fp64, 16, 16}}) {
    PredictionOptions options;
    options.dtype = dtype;
    CHECK(stage_state_bytes(plan, options)[0] == 99 * here);
    CHECK(stage_state_bytes(placed(vision_audio_llm()), options)[0] == 99 * (here + away));
    CHECK(stage_state_bytes(plan, options)[1] ==
          stage_state_bytes(placed(vision_audio_llm()), options)[1]);
    const auto host = host_states(plan, options);
    REQUIRE(host.size() == 1);
    CHECK(host[0].bytes == 99 * away);
    CHECK(host[0].largest_bytes == 13 * away);
  }
  CHECK(host_states(placed(vision_audio_llm()), {})[0].bytes == 0);
  const auto apart = host_states(placed(with_host_state(), 1), {});
  CHECK(apart[0].bytes == 99 * 8);
  CHECK(apart[1].bytes == 0);
}

TEST_CASE("a standby holder keeps less by what is in host memory", "[scheduler]") {
  auto model = testing::text_llm(2);  // 10 and 11 elements.
  model.modules[0].moments_in_host = true;
  const auto plan =
      add_standbys(place_by_hand(model, {}, {2, 1}).value(), {1, Dtype::fp32}).value();
  CHECK(standby_state_bytes(plan, {}) == std::vector<double>{11 * 8, 10 * 8});
  for (const HostState& host : host_states(plan, {})) {
    CHECK(host.bytes == (10 + 11) * 8);
    CHECK(host.largest_bytes == 11 * 8);
  }
  // Where standbys go is decided by all that they keep.
  for (const StateUnit& unit : state_units(model)) {
    CHECK(unit.bytes(Dtype::fp32) == static_cast<double>(unit.trained) * 16);
    CHECK(unit.host_bytes(Dtype::fp32) == static_cast<double>(unit.trained) * 8);
  }
}

/// A sound plan to plant faults in.
struct Planted {
  ParallelPlan plan = placed(with_host_state());
  IterationPlan iteration = planned(plan);
  std::vector<Action>& list = iteration.actions[0];

  std::size_t place(ActionKind kind, int group) const {
    return place_of(list, kind, GroupId{group});
  }
  /// Exactly one fault, of this kind and about this action.
  void has_one(FaultKind kind, const std::string& action) const {
    const auto faults = check(plan, iteration);
    INFO(text_of(faults));
    REQUIRE(faults.size() == 1);
    CHECK(faults[0].kind == kind);
    CHECK(faults[0].action.starts_with(action + " stage 0"));
  }
  bool finds(FaultKind kind, const std::string& action) const {
    return std::ranges::any_of(check(plan, iteration), [&](const Fault& fault) {
      return fault.kind == kind && fault.action.starts_with(action);
    });
  }
  void erase(std::size_t at) { list.erase(list.begin() + static_cast<std::ptrdiff_t>(at)); }
  void insert(std::size_t at, const Action& action) {
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

TEST_CASE("each rule about moments in host memory finds its planted fault", "[scheduler]") {
  using enum ActionKind;
  for (const ActionKind kind : {fetch_state, optimizer_step, offload_state}) {
    Planted bad;  // Of the last group, behind which none comes.
    bad.erase(bad.place(kind, 8));
    bad.has_one(FaultKind::missing, std::string(to_string(kind)));
  }
  for (const ActionKind kind : {fetch_state, optimizer_step, offload_state}) {
    Planted bad;  // It is there, or away, already.
    bad.insert(bad.place(kind, 2), Action(bad.list[bad.place(kind, 2)]));
    bad.has_one(FaultKind::duplicate, std::string(to_string(kind)));
  }
  {
    Planted bad;  // An update of what is away.
    bad.put_behind(bad.place(fetch_state, 2), bad.place(optimizer_step, 2));
    bad.has_one(FaultKind::dependency, "optimizer_step");
  }
  {
    Planted bad;  // It would go back as it was.
    bad.put_behind(bad.place(optimizer_step, 2), bad.place(offload_state, 2));
    bad.has_one(FaultKind::dependency, "offload_state");
  }
  {
    Planted bad;  // Activations may still have the room.
    bad.put_behind(place_of(bad.list, commit), bad.place(fetch_state, 0));
    CHECK(bad.finds(FaultKind::dependency, "fetch_state"));
  }
  {
    Planted bad;  // Two at a time.
    bad.put_behind(bad.place(offload_state, 2), bad.place(fetch_state, 3));
    bad.has_one(FaultKind::memory, "fetch_state");
  }
  for (const ActionKind kind : {fetch_state, offload_state}) {
    Planted bad;  // The llm keeps what it has.
    Action action = bad.list.back();
    action.kind = kind;
    action.group = GroupId{9};
    bad.insert(bad.list.size(), action);
    CHECK(bad.finds(FaultKind::unknown, std::string(to_string(kind))));
  }
  {
    Planted bad;  // A plan that knows nothing of it.
    bad.iteration = planned(placed(vision_audio_llm()));
    CHECK(bad.finds(FaultKind::missing, "fetch_state"));
    CHECK(bad.finds(FaultKind::unknown, "optimizer_step"));
  }
}

TEST_CASE("plans of any layout have each group's moments once on each of its holders",
          "[scheduler][property]") {
  int seen = 0;
  for (std::uint32_t seed = 0; seed < 600; ++seed) {
    auto made = testing::random_case(seed);
    testing::draw_host_state(made.plan, seed);
    const auto iteration = plan_iteration(made.plan, made.input).value();
    INFO("seed " << seed);
    const auto faults = check(made.plan, iteration);
    INFO(text_of(faults));
    REQUIRE(faults.empty());
    std::vector<std::size_t> fetched(made.plan.groups.size());
    for (const auto& list : iteration.actions)
      for (std::size_t i = 0; i < list.size(); ++i) {
        if (list[i].kind != ActionKind::fetch_state) continue;
        ++seen;
        ++fetched[list[i].group.index()];
        REQUIRE(i + 2 < list.size());
        CHECK(list[i + 1].kind == ActionKind::optimizer_step);
        CHECK(list[i + 2].kind == ActionKind::offload_state);
        CHECK(list[i + 1].group == list[i].group);
        CHECK(list[i + 2].group == list[i].group);
      }
    for (std::size_t g = 0; g < fetched.size(); ++g)
      CHECK(fetched[g] ==
            (moments_in_host(made.plan, GroupId{g}) ? made.plan.groups[g].holders.size() : 0));
    CHECK(simulate(made.plan, iteration, {}).ok());
  }
  CHECK(seen > 1000);
}

}  // namespace
}  // namespace troupe::scheduler
