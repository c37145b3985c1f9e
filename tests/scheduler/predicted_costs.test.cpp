#include "scheduler/simulate/predicted_costs.hpp"
#include "scheduler/iteration/stage_graph.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <memory>

#include "tests/scheduler/random_plans.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using testing::over_all_links;
using testing::sample;
using testing::text_llm;
using testing::vision_audio_llm;

/// Per token 0.01 ms forward, 0.02 input gradient, 0.03 weight gradient and 4 bytes; 1 ms per
/// launch forward; attention 1e-4 ms per squared length, double that backward, and 0.1 ms per
/// sequence forward.
LayerProfile kind(const std::string& name, bool attends, double scale = 1) {
  LayerProfile profile{name, {}, CostOrigin::measured, Bytes{20}, {}};
  for (const TokenCount count : {1, 4, 16, 64, 256, 1024}) {
    const auto tokens = static_cast<double>(count) * scale;
    const double square = attends ? 1e-4 * static_cast<double>(count * count) : 0;
    profile.points.push_back({count,
                              {0.01 * tokens + 1, 0.02 * tokens, 0.03 * tokens, 4 * tokens},
                              {square + (attends ? 0.1 : 0), 2 * square, 0, 0}});
  }
  return profile;
}

/// `block` for every layer, except the llm's last one (`head`, ten times as dear, no attention) and
/// projectors (`rows`).
Profile profile_of(const ModelGraph& graph) {
  Profile profile{
      "test", {}, {kind("block", true), kind("rows", false), kind("head", false, 10)}, {}};
  for (const auto& module : graph.modules)
    for (const auto& layer : module.layers)
      profile.layers.push_back(
          {layer.name, module.kind == ModuleKind::projector ? "rows" : "block"});
  profile.layers.back().kind = "head";
  return profile;
}

CostModel cost_model(const ModelGraph& graph) {
  return CostModel::create(graph, profile_of(graph)).value();
}

TEST_CASE("a task costs what its packed rows cost in the layers of its stage", "[scheduler]") {
  const auto plan = place_by_hand(text_llm(3), {}, {1, 1}).value();
  const std::vector<SampleShape> samples{sample(0, 0, 100), sample(0, 0, 200)};  // 51, 101 trained.
  const auto costs = predicted_costs(plan, cost_model(plan.model), samples).value();
  // Two blocks: 1 + 0.01 x 300 + 2 x 0.1 + 1e-4 (100^2 + 200^2) = 9.2 each. Head: 1 + 0.1 x 152.
  CHECK(costs.task_ms(StageId{0}, {0, 1}, TaskKind::forward) == Approx(2 * 9.2 + 16.2));
  // Input gradients: not for the first layer. Block 0.02 x 300 + 2 x 5 = 16, head 0.2 x 152 = 30.4.
  CHECK(costs.task_ms(StageId{0}, {0, 1}, TaskKind::backward_input) == Approx(16 + 30.4));
  // Weight gradients: 2 x 0.03 x 300 and 0.3 x 152.
  CHECK(costs.task_ms(StageId{0}, {0, 1}, TaskKind::backward_weight) == Approx(18 + 45.6));
  CHECK(costs.task_ms(StageId{0}, {0, 1}, TaskKind::backward) == Approx(46.4 + 63.6));
  CHECK(costs.activation_bytes(StageId{0}, {0, 1}) == Approx(2 * 4 * 300 + 40 * 152));
}

TEST_CASE("an llm that attends by modality costs the pairs of its mask", "[scheduler]") {
  auto graph = vision_audio_llm();
  graph.modules.back().attention = AttentionRule::modality;
  const auto plan = place_by_hand(graph, {}, {1, 1}).value();
  // A picture of 2 rows behind 40 of 98 tokens of text: of 100 x 101 / 2 = 5050 pairs its rows see
  // 4 where text in their place sees 41 + 42. Text alone costs what it did.
  std::vector<SampleShape> samples{sample(1, 0, 98), sample(0, 0, 100)};
  samples[0].markers = {{ModuleId{0}, 40}};
  const auto costs = predicted_costs(plan, cost_model(graph), samples).value();
  const StageId llm{1};
  const double share = (5050.0 - 83 + 4) / 5050;
  // 5 blocks: 1 + 0.01 x 100, attention of 0.1 + 1e-4 x 100^2; head 1 + 0.1 x trained tokens.
  CHECK(costs.task_ms(llm, {0}, TaskKind::forward) == Approx(5 * (2 + share * 1.1) + 6));
  CHECK(costs.task_ms(llm, {1}, TaskKind::forward) == Approx(5 * (2 + 1.1) + 6.1));
  CHECK(costs.task_ms(llm, {0, 1}, TaskKind::forward) ==
        Approx(5 * (3 + share * 1.1 + 1.1) + 11.1));
  // Gradients of rows: 0.02 x 100 and twice 1e-4 x 100^2; of the head's 0.2 x 50.
  CHECK(costs.task_ms(llm, {0}, TaskKind::backward_input) == Approx(5 * (2 + share * 2) + 10));
  // What waits for the backward follows tokens.
  graph.modules.back().attention = AttentionRule::causal;
  const auto causal = predicted_costs(plan, cost_model(graph), samples).value();
  CHECK(costs.activation_bytes(llm, {0}) == causal.activation_bytes(llm, {0}));
  CHECK(causal.task_ms(llm, {0}, TaskKind::forward) == Approx(5 * (2 + 1.1) + 6));
}

TEST_CASE("samples without media cost an encoder nothing", "[scheduler]") {
  const auto graph = vision_audio_llm();
  const auto plan = place_by_hand(graph, {}, {1, 1}).value();
  const std::vector<SampleShape> samples{sample(0, 0, 100), sample(2, 0, 100)};
  const auto costs = predicted_costs(plan, cost_model(graph), samples).value();
  const StageId encoders{0};
  REQUIRE_FALSE(plan.is_llm(encoders));
  CHECK(costs.task_ms(encoders, {0}, TaskKind::forward) == 0);
  // 4 layers over two images of 8 patches, 1 + 0.16 + 2 x (0.1 + 64e-4); projector of 4 rows, 1.04.
  CHECK(costs.task_ms(encoders, {1}, TaskKind::forward) == Approx(4 * 1.3728 + 1.04));
  CHECK(costs.task_ms(encoders, {0, 1}, TaskKind::forward) ==
        costs.task_ms(encoders, {1}, TaskKind::forward));
}

TEST_CASE("a frozen llm has a backward only for samples with something trainable before",
          "[scheduler]") {
  auto graph = vision_audio_llm();
  graph.modules[0].freeze = graph.modules[4].freeze = true;
  const auto plan = place_by_hand(graph, {}, {1, 1}).value();
  const std::vector<SampleShape> samples{sample(0, 0, 100), sample(1, 0, 98)};
  const auto costs = predicted_costs(plan, cost_model(graph), samples).value();
  const StageId encoders{0}, llm{1};
  CHECK(costs.task_ms(llm, {0}, TaskKind::backward) == 0);
  CHECK(costs.activation_bytes(llm, {0}) == 0);
  // 5 blocks of 100 rows: 0.02 x 100 + 2 x 1 = 4; head 0.2 x 50 trained tokens = 10.
  CHECK(costs.task_ms(llm, {1}, TaskKind::backward) == Approx(5 * 4 + 10));
  CHECK(costs.task_ms(llm, {1}, TaskKind::backward_weight) == 0);
  // Of the encoder stage the projector alone trains, and needs no input gradient: 0.03 x 2 rows.
  CHECK(costs.task_ms(encoders, {1}, TaskKind::backward) == Approx(0.06));
}

TEST_CASE("state is what training keeps, by dtype", "[scheduler]") {
  // Layers of 10, 11 and 12 elements. fp32: 4 + 4 + 8; bf16: 2 + 4 + 8 + 4; fp64: four times 8.
  auto graph = text_llm(3);
  graph.modules[0].layers[0].constant_elements = 5;
  const auto plan = place_by_hand(graph, {}, {1, 1}).value();
  const auto bytes = [&](const ParallelPlan& shown, Dtype dtype) {
    const auto model = cost_model(shown.model);
    return predicted_costs(shown, model, {}, {dtype, {}}).value().state_bytes(StageId{0});
  };
  CHECK(bytes(plan, Dtype::fp32) == 33 * 16 + 5 * 4);
  CHECK(bytes(plan, Dtype::bf16) == 33 * 18 + 5 * 2);
  CHECK(bytes(plan, Dtype::fp64) == 33 * 32 + 5 * 8);
  graph.modules[0].freeze = true;
  CHECK(bytes(place_by_hand(graph, {}, {1, 1}).value(), Dtype::bf16) == 38 * 2);
}

TEST_CASE("a stage keeps and updates a tied parameter once, with a gradient per use",
          "[scheduler]") {
  // By hand: 33 elements of the layers, 40 of the first and the last one. fp32: 16 and 4 bytes.
  auto graph = text_llm(3);
  graph.tied = {{"llm.embed", {{ModuleId{0}, 0}, {ModuleId{0}, 2}}, 40}};
  PredictionOptions options;
  options.speeds.optimizer_group_ms = 0.5;
  options.speeds.optimizer_elements_per_s = 1000;
  const auto together = place_by_hand(graph, {}, {1, 1}).value();
  const auto costs = predicted_costs(together, cost_model(graph), {}, options).value();
  CHECK(costs.state_bytes(StageId{0}) == (33 + 40) * 16 + 40 * 4);
  CHECK(costs.optimizer_ms(StageId{0}) == Approx(4 * 0.5 + 33 + 40));
  // Where the two are apart each keeps all of it.
  const auto apart = place_by_hand(graph, {}, {2, 1}).value();
  const auto bytes = stage_state_bytes(apart, options);
  CHECK(bytes[0] + bytes[1] == (33 + 2 * 40) * 16);
  graph.modules[0].freeze = true;
  CHECK(stage_state_bytes(place_by_hand(graph, {}, {1, 1}).value(), options)[0] == (33 + 40) * 4);
}

TEST_CASE("updates take a time per group and one per element", "[scheduler]") {
  const auto plan = place_by_hand(text_llm(3), {}, {1, 1}).value();
  PredictionOptions options;
  options.speeds.optimizer_group_ms = 0.5;
  options.speeds.optimizer_elements_per_s = 11'000;  // 33 elements: 3 ms.
  const auto costs = predicted_costs(plan, cost_model(plan.model), {}, options).value();
  CHECK(costs.optimizer_ms(StageId{0}) == Approx(3 * 0.5 + 3));
}

TEST_CASE("a group whose moments are in host memory is updated alone", "[scheduler]") {
  auto graph = text_llm(3);  // 10, 11 and 12 elements.
  graph.modules[0].moments_in_host = true;
  PredictionOptions options;
  options.speeds.optimizer_group_ms = 0.5;
  options.speeds.optimizer_elements_per_s = 1000;
  const auto plan =
      add_standbys(place_by_hand(graph, {}, {2, 1}).value(), {1, Dtype::fp32}).value();
  const auto costs = predicted_costs(plan, cost_model(graph), {}, options).value();
  for (int stage = 0; stage < 2; ++stage) {
    CHECK(costs.optimizer_ms(StageId{stage}) == 0);
    CHECK(costs.standby_optimizer_ms(DeviceId{stage}) == 0);
  }
  for (std::size_t g = 0; g < 3; ++g)
    for (const StageId stage : {plan.groups[g].uses.front().stage, StageId{}}) {
      const auto elements = static_cast<double>(10 + g);
      CHECK(costs.moment_bytes(GroupId{g}, stage) == elements * 8);
      CHECK(costs.group_optimizer_ms(GroupId{g}, stage) == Approx(0.5 + elements));
    }
  Action step;
  step.kind = ActionKind::optimizer_step;
  step.stage = plan.groups[2].uses.front().stage;
  step.group = GroupId{2};
  CHECK(costs.update_ms(step, DeviceId{0}) == Approx(12.5));
}

TEST_CASE("a standby holder keeps and updates what the stage does", "[scheduler]") {
  // Two layers on two nodes, each kept by the other node too; one of another model is frozen.
  for (const bool frozen : {false, true})
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
      auto graph = text_llm(2);
      graph.modules[0].layers[0].constant_elements = 5;
      graph.modules[0].freeze = frozen;
      const auto plan = add_standbys(place_by_hand(graph, {}, {2, 1}).value(), {1, dtype}).value();
      PredictionOptions options;
      options.dtype = dtype;
      options.speeds.optimizer_group_ms = 0.5;
      options.speeds.optimizer_elements_per_s = 11'000;
      const auto costs = predicted_costs(plan, cost_model(graph), {}, options).value();
      for (const int device : {0, 1}) {
        const StageId stage{1 - device};
        CHECK(costs.standby_bytes(DeviceId{device}) == costs.state_bytes(stage));
        CHECK(costs.standby_bytes(DeviceId{device}) > 0);
        CHECK(costs.standby_optimizer_ms(DeviceId{device}) == costs.optimizer_ms(stage));
      }
      CHECK(standby_state_bytes(plan, options) ==
            std::vector<double>{costs.state_bytes(StageId{1}), costs.state_bytes(StageId{0})});
    }
}

TEST_CASE("links and sums cost what their speeds say, and nothing else does", "[scheduler]") {
  PredictionOptions options;
  options.dtype = Dtype::bf16;
  DeviceSpeeds& speeds = options.speeds;
  speeds.device = {0.1, 1};
  speeds.node = {0.2, 2};
  speeds.machine = {0.3, 3};
  speeds.network = {0.4, 4};
  speeds.host = {0.5, 5};
  speeds.reduce_gigabytes_per_s = 6;
  const SimulationCosts costs = link_and_sum_costs(options);
  CHECK(costs.link(LinkClass::device) == speeds.device);
  CHECK(costs.link(LinkClass::node) == speeds.node);
  CHECK(costs.link(LinkClass::network) == speeds.network);
  CHECK(costs.reduce_gigabytes_per_s == 6);
  CHECK(costs.bytes_per_element == 2);
  CHECK(costs.summed_bytes_per_element == 4);  // Gradients of bf16 are added up in fp32.
  CHECK(costs.host == LinkSpeed{});  // Sums of a step do not wait for moves to host memory.
  CHECK(!costs.task_ms);
}

TEST_CASE("a message takes the latency and speed of its link", "[scheduler]") {
  const auto plan = place_by_hand(text_llm(2), {}, {2, 1}).value();
  PredictionOptions options;
  options.speeds.network = {0.5, 0.00256};
  const auto costs = predicted_costs(plan, cost_model(plan.model), {}, options).value();
  Message message;
  message.source.stage = StageId{0};
  message.destination.stage = StageId{1};
  message.rows = 10;
  message.width = 64;  // 2,560 bytes: 1 ms.
  CHECK(message_costs(plan, costs)(message) == Approx(1.5));
  message.destination.stage = StageId{0};
  CHECK(message_costs(plan, costs)(message) == 0);
}

TEST_CASE("stages on one device, in one node and on two use links of their own", "[scheduler]") {
  const auto plan = over_all_links();
  PredictionOptions options;
  options.speeds.device = {0.1, 0.01024};  // 2,560 bytes: 0.25, 0.5 and 1 ms.
  options.speeds.node = {0.2, 0.00512};
  options.speeds.network = {0.4, 0.00256};
  const auto costs = predicted_costs(plan, cost_model(plan.model), {}, options).value();
  const auto ms = [&](std::size_t from, std::size_t to) {
    Message message;
    message.source.stage = StageId{from};
    message.destination.stage = StageId{to};
    message.rows = 10;
    message.width = 64;
    return message_costs(plan, costs)(message);
  };
  CHECK(ms(0, 1) == Approx(0.35));
  CHECK(ms(1, 2) == Approx(0.7));
  CHECK(ms(2, 3) == Approx(1.4));
  CHECK(ms(3, 4) == Approx(0.7));
  CHECK(costs.device == options.speeds.device);
  CHECK(costs.node == options.speeds.node);
}

TEST_CASE("a sample's work leaves out what a launch costs in any case", "[scheduler]") {
  const auto graph = vision_audio_llm();
  const std::vector<SampleShape> samples{sample(0, 0, 100), sample(1, 1, 100)};
  const auto works = sample_workloads(cost_model(graph), samples).value();
  REQUIRE(works.size() == 2);
  CHECK(works[0].encoder_total_ms == 0);
  // 5 blocks: 0.01 x 100 + 0.1 + 1 = 2.1 each; head 0.1 x 51. The constant 1 ms is left out.
  CHECK(works[0].llm_forward_ms == Approx(5 * 2.1 + 5.1));
  // Backward: weights 5 x 3 + 15.3, inputs 4 x (2 + 2) + 10.2.
  CHECK(works[0].llm_total_ms == Approx(15.6 + 15 + 15.3 + 16 + 10.2));
  // Vision 8 rows in 4 layers and 2 in the projector, audio 5 rows in 3 layers and the projector.
  CHECK(works[1].encoder_forward_ms ==
        Approx(4 * (0.18 + 64e-4) + 0.02 + 3 * (0.15 + 25e-4) + 0.05));
  CHECK(works[1].encoder_total_ms > works[1].encoder_forward_ms);
}

TEST_CASE("a missing tensor-parallel profile is an error", "[scheduler][errors]") {
  const HandLayout four{{{{.node = 0, .runs = {{"llm", {}}}, .devices = {0, 1, 2, 3}, .tp = 4}}}};
  const auto plan = place_by_hand(text_llm(2), four, {1, 4}).value();
  const auto costs = predicted_costs(plan, cost_model(plan.model), std::span<const SampleShape>());
  REQUIRE_FALSE(costs.ok());
  CHECK(costs.error().code == Errc::not_found);
  CHECK_FALSE(sample_workloads(cost_model(plan.model), {}, module_degrees(plan)).ok());
}

TEST_CASE("a plan costs what its layers cost, wherever they lie", "[scheduler][property]") {
  // Stage by stage or all in one: the same layers, hence the same sum. Every stage that has a
  // backward in the iteration has a cost for it, and no other.
  const auto made = testing::random_case(GENERATE(range(0u, 60u)));
  const auto& graph = made.plan.model;
  const auto model = cost_model(graph);
  const SampleUnits units(made.input.samples, made.input.pieces);
  const auto costs = predicted_costs(made.plan, model, units.shapes()).value();
  for (std::size_t s = 0; s < made.input.samples.size(); ++s) {
    const std::vector<std::int32_t> part{static_cast<std::int32_t>(s)};
    double forward = 0, expected = 0;
    for (std::size_t r = 0; r < made.plan.replicas.size(); ++r)
      if (made.plan.is_first(ReplicaId{r}))
        for (const StageId stage : made.plan.replicas[r].stages)
          forward += costs.task_ms(stage, part, TaskKind::forward);
    for (std::size_t m = 0; m < graph.modules.size(); ++m) {
      const auto lengths = sequence_lengths(graph, made.input.samples[s], ModuleId{m});
      for (std::size_t l = 0; l < graph.modules[m].layers.size(); ++l) {
        const bool head = ModuleId{m} == graph.llm() && l + 1 == graph.modules[m].layers.size();
        const std::vector<TokenCount> trained{made.input.samples[s].trained_tokens};
        expected +=
            model.cost({ModuleId{m}, static_cast<std::int32_t>(l)}, head ? trained : lengths)
                .value()
                .forward_ms;
      }
    }
    CHECK(forward == Approx(expected));
  }
  auto input = made.input;
  input.task_cost = costs.task_ms;
  input.message_cost = message_costs(made.plan, costs);
  const auto iteration = plan_iteration(made.plan, input);
  REQUIRE(iteration.ok());
  const auto step = simulate(made.plan, iteration.value(), costs).value();
  CHECK(step.completed);
  for (const auto& list : iteration.value().actions)
    for (const auto& action : list) {
      if (action.kind != ActionKind::backward) continue;
      const auto& part =
          samples_of(made.plan, iteration.value(), action.stage, action.microbatch, action.part);
      CHECK(costs.task_ms(action.stage, part, TaskKind::backward) > 0);
    }
}

TEST_CASE("costs of given microbatches are those of any, to the bit", "[scheduler][property]") {
  const auto made = testing::random_case(GENERATE(range(0u, 60u)));
  const auto model = cost_model(made.plan.model);
  // Samples and pieces are given in another order, each of them twice.
  const SampleUnits units(made.input.samples, made.input.pieces);
  const auto samples = units.shapes();
  std::vector<SampleShape> shelf(samples.rbegin(), samples.rend());
  shelf.insert(shelf.end(), samples.begin(), samples.end());
  std::vector<std::int32_t> order;
  for (std::size_t s = 0; s < samples.size(); ++s)
    order.push_back(
        static_cast<std::int32_t>(s % 2 == 0 ? samples.size() + s : samples.size() - 1 - s));
  SampleSums sums(model, shelf);
  const SampleCosts of_samples = sums.at({}).value().in_order(order);

  const auto plain = predicted_costs(made.plan, model, samples).value();
  const auto ordered = predicted_costs(made.plan, of_samples, {});
  const auto known = predicted_costs(made.plan, of_samples, made.input.microbatches, {});
  const auto summed = with_summed_parts(ordered, made.plan, of_samples, made.input.microbatches);
  for (std::size_t s = 0; s < made.plan.stages.size(); ++s) {
    const StageId stage{s};
    for (const auto& microbatch : made.input.microbatches[made.plan.at(stage).replica.index()])
      for (const auto& part : microbatch.parts)
        for (const auto* costs : {&ordered, &known, &summed}) {
          for (const auto task : {TaskKind::forward, TaskKind::backward, TaskKind::backward_input,
                                  TaskKind::backward_weight})
            CHECK(costs->task_ms(stage, part.samples, task) ==
                  plain.task_ms(stage, part.samples, task));
          CHECK(costs->activation_bytes(stage, part.samples) ==
                plain.activation_bytes(stage, part.samples));
          CHECK(costs->state_bytes(stage) == plain.state_bytes(stage));
        }
  }
}

TEST_CASE("sums outlive what made them, and degrees without a profile are refused", "[scheduler]") {
  const auto model = cost_model(text_llm(3));
  const std::vector<SampleShape> samples{sample(0, 0, 100)};
  auto sums = std::make_unique<SampleSums>(model, samples);
  const std::vector<Parallelism> unknown{{2, 1}};
  CHECK(sums->at(unknown).error().code == Errc::not_found);
  const auto costs = sums->at({}).value();
  sums.reset();
  std::vector<AlikeLayers> layers;
  costs.add({ModuleId{0}, {0, 2}}, {}, layers);
  REQUIRE(layers.size() == 1);  // Two blocks: 0.01 x 100 + 1, attention 1e-4 x 100^2 + 0.1 each.
  CHECK(costs.part(layers, std::vector<std::int32_t>{0}).forward == Approx(2 * 3.1));
  CHECK(costs.sample(layers, 0).forward == Approx(2 * 2.1));
}

}  // namespace
}  // namespace troupe::scheduler
