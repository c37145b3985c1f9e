#include "scheduler/iteration/plan_iteration.hpp"

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>

#include "scheduler/iteration/stage_graph.hpp"
#include "scheduler/layout/place_by_hand.hpp"
#include "tests/scheduler/example_models.hpp"
#include "tests/scheduler/random_plans.hpp"

namespace troupe::scheduler {
namespace {

using testing::sample;
using testing::text_llm;
using testing::vision_audio_llm;

/// The compute of a device as `F0 F1 B0`.
std::string compute_of(const std::vector<Action>& actions) {
  std::string text;
  for (const auto& action : actions) {
    const char* name = action.kind == ActionKind::forward           ? "F"
                       : action.kind == ActionKind::backward        ? "B"
                       : action.kind == ActionKind::backward_input  ? "I"
                       : action.kind == ActionKind::backward_weight ? "W"
                                                                    : nullptr;
    if (name)
      text +=
          (text.empty() ? "" : " ") + std::string(name) + std::to_string(action.microbatch.value);
  }
  return text;
}

TEST_CASE("1F1B runs as many forwards as stages are left, then pairs, then drains", "[scheduler]") {
  // Four stages, six microbatches: stage r runs 4 - r forwards, then 6 - 4 + r (backward, forward)
  // pairs, then 4 - r backwards.
  const auto plan = place_by_hand(text_llm(4), {}, {4, 1}).value();
  IterationInput input;
  for (int i = 0; i < 6; ++i) input.samples.push_back(sample(0, 0));
  input.microbatches = assign_by_count(plan, 6, 6);
  const auto iteration = plan_iteration(plan, input).value();
  CHECK(compute_of(iteration.actions[0]) == "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5");
  CHECK(compute_of(iteration.actions[1]) == "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5");
  CHECK(compute_of(iteration.actions[2]) == "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5");
  CHECK(compute_of(iteration.actions[3]) == "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5");
  CHECK(iteration.max_in_flight == std::vector<std::int32_t>{4, 3, 2, 1});
}

TEST_CASE("one encoder stage and three llm stages share one 1F1B order", "[scheduler]") {
  // Stage r of four runs 4 - r forwards, m - 4 + r pairs of backward and forward, 4 - r backwards.
  auto model = vision_audio_llm();
  model.modules.erase(model.modules.begin() + 2, model.modules.begin() + 4);  // No audio.
  model.modules[1].next = {ModuleId{2}};
  const HandLayout layout{{{{0, 0, {{"vision", std::nullopt}}},
                            {1, 0, {{"llm", LayerRange{0, 2}}}},
                            {2, 0, {{"llm", LayerRange{2, 4}}}},
                            {3, 0, {{"llm", LayerRange{4, 6}}}}}}};
  const auto plan = place_by_hand(model, layout, {4, 1}).value();
  for (int m = 4; m <= 9; ++m) {
    IterationInput input;
    for (int i = 0; i < m; ++i) input.samples.push_back(sample(1, 0));
    input.microbatches = assign_by_count(plan, m, m);
    const auto iteration = plan_iteration(plan, input).value();
    for (int r = 0; r < 4; ++r) {
      std::string expected;
      for (int f = 0; f < 4 - r; ++f) expected += "F" + std::to_string(f) + " ";
      for (int b = 0; b < m - 4 + r; ++b)
        expected += "B" + std::to_string(b) + " F" + std::to_string(b + 4 - r) + " ";
      for (int b = m - 4 + r; b < m; ++b) expected += "B" + std::to_string(b) + " ";
      expected.pop_back();
      CHECK(compute_of(iteration.actions[static_cast<std::size_t>(r)]) == expected);
    }
  }
}

HandRun all(const std::string& module) { return {module, std::nullopt}; }

/// Vision on device 0, audio on 1, llm on 2; one microbatch per sample.
IterationPlan plan_three_devices(ModelGraph model, std::vector<SampleShape> samples) {
  const HandLayout layout{
      {{{0, 0, {all("vision")}}, {1, 0, {all("audio")}}, {2, 0, {all("llm")}}}}};
  const auto plan = place_by_hand(std::move(model), layout, {3, 1}).value();
  IterationInput input;
  const auto count = static_cast<std::int32_t>(samples.size());
  input.samples = std::move(samples);
  input.microbatches = assign_by_count(plan, count, count);
  return plan_iteration(plan, input).value();
}

TEST_CASE("only rows that exist move, and each kind of media skips the other's encoder",
          "[scheduler]") {
  // Sample 0: two images (2 rows each); 1: text; 2: one audio window (5 rows) and one image.
  const auto iteration =
      plan_three_devices(vision_audio_llm(), {sample(2, 0), sample(0, 0), sample(1, 1)});
  CHECK(compute_of(iteration.actions[0]) == "F0 F2 B0 B2");
  CHECK(compute_of(iteration.actions[1]) == "F2 B2");
  CHECK(compute_of(iteration.actions[2]) == "F0 B0 F1 B1 F2 B2");
  REQUIRE(iteration.messages.size() == 3);
  const auto& images = iteration.messages[0];
  CHECK(images.module == ModuleId{1});  // The projector beside the encoder hands them on.
  CHECK(images.boundary);
  CHECK(images.rows == 4);
  CHECK(images.width == 64);
  CHECK(images.samples == std::vector<std::int32_t>{0});
  CHECK(images.has_backward);
  CHECK(iteration.messages[2].rows == 5);
  CHECK(iteration.trained_tokens == 3 * 4);
}

TEST_CASE("two encoders meet at the llm's first stage, which waits for both", "[scheduler]") {
  // R0 -> R1: vision in two stages. R2: audio. R3 -> R4 -> R5: the llm. Boundaries R1 -> R3 and
  // R2 -> R3; each microbatch has an image and a clip.
  const HandLayout layout{{{{0, 0, {{"vision", LayerRange{0, 2}}}},
                            {1, 0, {{"vision", LayerRange{2, 4}}}},
                            {2, 0, {all("audio")}},
                            {3, 0, {{"llm", LayerRange{0, 2}}}},
                            {4, 0, {{"llm", LayerRange{2, 4}}}},
                            {5, 0, {{"llm", LayerRange{4, 6}}}}}}};
  const auto plan = place_by_hand(vision_audio_llm(), layout, {6, 1}).value();
  IterationInput input;
  for (int i = 0; i < 5; ++i) input.samples.push_back(sample(1, 1));
  input.microbatches = assign_by_count(plan, 5, 5);
  const auto iteration = plan_iteration(plan, input).value();
  std::map<std::tuple<std::int32_t, std::int32_t, bool>, int> transfers;
  for (const auto& message : iteration.messages)
    ++transfers[{plan.at(message.source.stage).devices[0].value,
                 plan.at(message.destination.stage).devices[0].value, message.boundary}];
  CHECK((transfers == decltype(transfers){{{0, 1, false}, 5},
                                          {{3, 4, false}, 5},
                                          {{4, 5, false}, 5},
                                          {{1, 3, true}, 5},
                                          {{2, 3, true}, 5}}));
  // Before each forward of R3 stand the receives of both encoders' rows for it.
  std::map<std::int32_t, std::set<std::int32_t>> from;
  for (const auto& action : iteration.actions[3]) {
    if (action.kind == ActionKind::receive) {
      const auto& message = iteration.messages[action.message.index()];
      from[message.destination.microbatch.value].insert(
          plan.at(message.source.stage).devices[0].value);
    } else if (action.kind == ActionKind::forward) {
      CHECK((from[action.microbatch.value] == std::set<std::int32_t>{1, 2}));
    }
  }
  CHECK(from.size() == 5);
}

TEST_CASE("every token weighs the same, however uneven the microbatches", "[scheduler]") {
  // Trained tokens per microbatch 8, 16, 900, 100: one divisor, 1024, for all of them. A mean of
  // means would give a token of the first 1 / (4 x 8), 32 times its weight of 1 / 1024.
  const auto plan = place_by_hand(text_llm(2), {}, {2, 1}).value();
  for (const int microbatches : {1, 2, 4}) {
    IterationInput input;
    for (const TokenCount trained : {8, 16, 900, 100}) {
      input.samples.push_back(sample(0, 0, 1000));
      input.samples.back().trained_tokens = trained;
    }
    input.microbatches = assign_by_count(plan, 4, microbatches);
    CHECK(plan_iteration(plan, input).value().trained_tokens == 1024);
  }
}

TEST_CASE("a text-only microbatch of a run that trains projectors has no backward", "[scheduler]") {
  auto model = vision_audio_llm();
  for (auto& module : model.modules) module.freeze = module.kind != ModuleKind::projector;
  const auto iteration = plan_three_devices(model, {sample(1, 0), sample(0, 0)});
  CHECK(compute_of(iteration.actions[0]) == "F0 B0");
  CHECK(compute_of(iteration.actions[1]).empty());
  CHECK(compute_of(iteration.actions[2]) == "F0 B0 F1");
}

TEST_CASE("a frozen encoder with a frozen projector gets no gradient back", "[scheduler]") {
  auto model = vision_audio_llm();
  model.modules[0].freeze = model.modules[1].freeze = true;
  const auto iteration = plan_three_devices(model, {sample(1, 1)});
  CHECK(compute_of(iteration.actions[0]) == "F0");
  CHECK(compute_of(iteration.actions[1]) == "F0 B0");
  REQUIRE(iteration.messages.size() == 2);
  CHECK_FALSE(iteration.messages[0].has_backward);
  CHECK(iteration.messages[1].has_backward);
}

TEST_CASE("the step ends with sends, sums and receipts in group order, commit, update",
          "[scheduler]") {
  // Two pipelines of one stage each, two small layers: each device adds up one of them.
  const auto plan =
      place_by_hand(text_llm(2), {{{{0, 0, {all("llm")}}}, {{1, 0, {all("llm")}}}}}, {2, 1})
          .value();
  IterationInput input;
  input.samples = {sample(0, 0)};
  input.microbatches = assign_by_count(plan, 1, 1);  // The second pipeline has no sample.
  const auto iteration = plan_iteration(plan, input).value();
  std::vector<std::string> kinds;
  for (const auto& list : iteration.actions)
    for (const auto& action : list) kinds.emplace_back(to_string(action.kind));
  CHECK(kinds == std::vector<std::string>{"forward", "backward", "reduce_send", "reduce",
                                          "reduce_receive", "commit", "optimizer_step",
                                          "reduce_send", "reduce", "reduce_receive", "commit",
                                          "optimizer_step"});
  CHECK(iteration.actions[1][0].group == GroupId{0});
  CHECK(iteration.actions[1][0].stage == StageId{1});
}

TEST_CASE("gradients leave right behind the backward that completes them, sums come last",
          "[scheduler][property]") {
  const auto makes_gradients = [](const Action& action) {
    return action.kind == ActionKind::backward || action.kind == ActionKind::backward_input ||
           action.kind == ActionKind::backward_weight;
  };
  int beside_compute = 0;
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const auto made = testing::random_case(seed);
    const auto iteration = plan_iteration(made.plan, made.input).value();
    for (const auto& list : iteration.actions) {
      const auto completes = [&](const Action& action, GroupId group) {
        const auto& uses = made.plan.groups[group.index()].uses;
        return makes_gradients(action) && std::any_of(uses.begin(), uses.end(), [&](auto& use) {
                 return use.stage == action.stage;
               });
      };
      for (std::size_t i = 0; i < list.size(); ++i) {
        if (list[i].group.valid() && list[i].kind != ActionKind::reduce_send)
          CHECK(std::none_of(list.begin() + static_cast<std::ptrdiff_t>(i), list.end(),
                             [](const Action& later) { return later.microbatch.valid(); }));
        if (list[i].kind != ActionKind::reduce_send) continue;
        std::size_t before = i;
        while (before > 0 && (list[before - 1].kind == ActionKind::reduce_send ||
                              list[before - 1].kind == ActionKind::send_gradient))
          --before;
        const bool any = std::any_of(list.begin(), list.end(), [&](const Action& action) {
          return completes(action, list[i].group);
        });
        if (any) CHECK((before > 0 && completes(list[before - 1], list[i].group)));
        for (std::size_t later = i; later < list.size(); ++later)
          if (list[later].microbatch.valid()) ++beside_compute;
      }
    }
  }
  CHECK(beside_compute > 100);
}

TEST_CASE("a standby holder takes the sum, updates, and does nothing else", "[scheduler]") {
  // Node 0 computes all, node 1 keeps a second copy. Both layers are one group each.
  const HandLayout layout{{{{0, 0, {{"llm", {}}}}}}};
  auto plan = place_by_hand(text_llm(2), layout, {1, 1}).value();
  plan.devices.push_back({NodeId{1}, 0});
  plan = add_standbys(plan, {1, Dtype::fp32}).value();
  IterationInput input;
  input.samples.push_back(sample(0, 0));
  input.microbatches = assign_by_count(plan, 1, 1);
  const auto iteration = plan_iteration(plan, input).value();
  const auto kinds = [&](std::size_t device) {
    std::vector<ActionKind> list;
    for (const Action& action : iteration.actions[device]) list.push_back(action.kind);
    return list;
  };
  using enum ActionKind;
  CHECK(kinds(0) == std::vector{forward, backward, reduce, reduce, commit, optimizer_step});
  CHECK(kinds(1) == std::vector{reduce_receive, reduce_receive, commit, optimizer_step});
  for (const Action& action : iteration.actions[1]) CHECK_FALSE(action.stage.valid());
  CHECK(iteration.actions[1][1].group == GroupId{1});
}

TEST_CASE("standby holders change nothing of what stages do", "[scheduler][property]") {
  int more = 0;
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    auto made = testing::random_case(seed);
    const auto planned = plan_iteration(made.plan, made.input).value();
    auto alone = made.plan;
    alone.standbys.clear();
    alone.groups = parameter_groups(alone);
    const auto expected = plan_iteration(alone, made.input).value();
    CHECK(planned.messages == expected.messages);
    // Where a standby holder is beside one with a use, that one hands sums on to it.
    const auto hands_on = [](const Action& action) {
      return action.kind == ActionKind::reduce_relay || action.kind == ActionKind::reduce_receive;
    };
    for (std::size_t d = 0; d < expected.actions.size(); ++d) {
      auto own = planned.actions[d], before = expected.actions[d];
      more += static_cast<int>(std::erase_if(own, [](const Action& action) {
        return !action.stage.valid() && !action.message.valid() &&
               action.kind != ActionKind::commit && action.kind != ActionKind::send_content;
      }));
      std::erase_if(own, hands_on);
      std::erase_if(before, hands_on);
      CHECK(own == before);
    }
    for (std::size_t g = 0; g < alone.groups.size(); ++g)
      CHECK(made.plan.groups[g].order == alone.groups[g].order);
  }
  CHECK(more > 500);
}

TEST_CASE("a stage that holds a tied parameter twice acts once for it", "[scheduler]") {
  auto model = text_llm(2);
  for (auto& layer : model.modules[0].layers) layer.parameter_elements = 0;
  model.tied = {{"llm.embed", {{ModuleId{0}, 0}, {ModuleId{0}, 1}}, 40}};
  const auto plan = place_by_hand(model, {}, {1, 1}).value();
  REQUIRE(plan.groups.at(0).uses.size() == 2);
  const auto iteration = plan_iteration(plan, {}).ok();
  CHECK_FALSE(iteration);  // No list of microbatches for the pipeline.
  IterationInput input;
  input.microbatches = assign_by_count(plan, 0, 4);
  const auto empty = plan_iteration(plan, input).value();
  REQUIRE(empty.actions[0].size() == 3);
  CHECK(empty.actions[0][0].kind == ActionKind::reduce);
}

TEST_CASE("samples are shared out evenly and in order", "[scheduler]") {
  const std::vector<HandRun> all{{"vision", {}}, {"audio", {}}, {"llm", {}}};
  const HandLayout layout{{{{0, 0, all}}, {{1, 0, all}}, {{2, 0, all}}}};
  const auto plan = place_by_hand(vision_audio_llm(), layout, {3, 1}).value();
  const auto shared = assign_by_count(plan, 8, 2);  // 3 + 3 + 2 samples; 2 + 1, 2 + 1, 1 + 1.
  REQUIRE(shared.size() == 6);
  CHECK(shared[1][0].parts[0].samples == std::vector<std::int32_t>{0, 1});
  CHECK(shared[1][1].parts[0].samples == std::vector<std::int32_t>{2});
  CHECK(shared[4][1].parts[0].samples == std::vector<std::int32_t>{7});
  CHECK(assign_by_count(plan, 1, 8)[1].size() == 1);
  CHECK(assign_by_count(plan, 1, 8)[3].empty());
}

TEST_CASE("wrong input to the planner is refused with the fix", "[scheduler][errors]") {
  const auto plan = place_by_hand(vision_audio_llm(), {}, {1, 1}).value();
  const auto refused = [&](const IterationInput& input, const std::string& part) {
    const auto result = plan_iteration(plan, input);
    REQUIRE_FALSE(result.ok());
    CHECK(result.error().code == Errc::invalid_argument);
    INFO(result.error().message);
    CHECK(result.error().message.find(part) != std::string::npos);
    CHECK_FALSE(result.error().fix.empty());
  };
  IterationInput sound;
  sound.samples = {sample(0, 0), sample(0, 0)};
  sound.microbatches = assign_by_count(plan, 2, 2);
  auto input = sound;
  input.microbatches.emplace_back();
  refused(input, "3 replicas");
  input = sound;
  input.microbatches[1].pop_back();
  refused(input, "0 parts of llm");
  input = sound;
  input.microbatches[0][0].parts[0].samples[0] = 1;
  refused(input, "0 parts of vision+audio");
  input = sound;
  input.microbatches[1][0].parts[0].samples[0] = 2;
  refused(input, "piece 2 of 2");
  input = sound;
  input.microbatches[1][1].parts.clear();
  refused(input, "no part");
  input = sound;
  input.microbatches[1][1].parts[0].samples.clear();
  refused(input, "empty part");
  input = sound;
  input.samples[1].llm_tokens = 0;
  refused(input, "no llm tokens");
  input = sound;
  input.schedule = "1f1c";
  refused(input, "no schedule is called '1f1c'");
}

TEST_CASE("an iteration is the same with facts of its rows that were known before",
          "[scheduler][property]") {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    auto made = testing::random_case(seed);
    const SampleUnits units(made.input.samples, made.input.pieces);
    const auto plain = plan_iteration(made.plan, made.input);
    made.input.flow = std::make_shared<const RowFlow>(made.plan.model, units.shapes());
    made.input.units = seed % 2 == 0 ? &units : nullptr;
    const auto known = plan_iteration(made.plan, made.input);
    REQUIRE(plain.ok() == known.ok());
    if (plain.ok()) CHECK((plain.value() == known.value()));
  }
}

TEST_CASE("bounds and predicted times reach the schedule", "[scheduler]") {
  const auto plan = place_by_hand(text_llm(3), {}, {3, 1}).value();
  IterationInput input;
  for (int i = 0; i < 6; ++i) input.samples.push_back(sample(0, 0));
  input.microbatches = assign_by_count(plan, 6, 6);
  input.max_in_flight = {2, 0, 0};
  CHECK(plan_iteration(plan, input).value().max_in_flight == std::vector<std::int32_t>{2, 2, 1});
  input.max_in_flight = {2};
  CHECK_FALSE(plan_iteration(plan, input).ok());
  input.max_in_flight = {};
  input.schedule = "eager-1f1b";
  // A slow last stage lets the first one run ahead to its bound of 2 x 3.
  input.task_cost = [](StageId stage, const auto&, TaskKind) {
    return stage.value == 2 ? 5.0 : 1.0;
  };
  CHECK(plan_iteration(plan, input).value().max_in_flight[0] == 6);
}

}  // namespace
}  // namespace troupe::scheduler
