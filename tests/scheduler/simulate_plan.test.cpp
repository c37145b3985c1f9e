#include "scheduler/simulate/simulate_plan.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "scheduler/iteration/schedules.hpp"
#include "tests/scheduler/random_plans.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using testing::over_all_links;
using testing::random_case;
using testing::sample;
using testing::text_llm;

double forward_one_backward_two(StageId, const std::vector<std::int32_t>&, TaskKind kind) {
  return kind == TaskKind::backward ? 2 : 1;
}

/// Two stages on two nodes, four text microbatches of 10 rows, 64 columns.
struct TwoNodes {
  ParallelPlan plan = place_by_hand(text_llm(2), {}, {2, 1}).value();
  IterationPlan iteration;
  SimulationCosts costs;

  TwoNodes() {
    IterationInput input;
    for (int i = 0; i < 4; ++i) input.samples.push_back(sample(0, 0, 10));
    input.microbatches = assign_by_count(plan, 4, 4);
    iteration = plan_iteration(plan, input).value();
    costs.task_ms = forward_one_backward_two;
  }
  SimulatedStep run(const SimulationOptions& options = {}) const {
    return simulate(plan, iteration, costs, options).value();
  }
};

TEST_CASE("without links the step is that of 1F1B", "[scheduler]") {
  // (M + S - 1)(f + b) = 5 x 3 = 15; work 12 per device.
  const TwoNodes two;
  const auto step = two.run();
  CHECK(step.completed);
  CHECK(step.step_ms == 15);
  CHECK(step.bubble == Approx(0.2));
  CHECK(step.stage_ms == std::vector<double>{12, 12});
  CHECK(step.stage_bubble[1] == Approx(0.2));
}

TEST_CASE("links, optimizer and commit take their time", "[scheduler]") {
  TwoNodes two;
  // 10 rows x 64 x 4 bytes = 2,560 bytes at 0.00256 GB/s: 1 ms, and 0.5 ms latency. Stage 1: F0 at
  // 2.5, B0 to 5.5, its gradient at stage 0 at 7; B0 7-9, F2 9-10, there at 11.5. Meanwhile stage 1
  // has done F1 and B1 (to 8.5) and waits 3 ms. F2 to B3 11.5-17.5, the last gradient at 19, B3 to
  // 21; then commit 2 x 0.5 and the update 0.25.
  two.costs.network = {0.5, 0.00256};
  two.costs.optimizer_ms = [](StageId) { return 0.25; };
  const auto step = two.run();
  CHECK(step.step_ms == Approx(21 + 1 + 0.25));
}

TEST_CASE("transfers of one device leave one after the other", "[scheduler]") {
  TwoNodes two;
  two.costs.task_ms = {};  // Rows of four microbatches at once: 4 x 1 ms out, then back.
  two.costs.network = {0, 0.00256};
  // Warm-up 2: rows 0 and 1 leave at 0, arriving at 1 and 2; gradients 0 and 1 at 2 and 3; then
  // rows 2 (from 2) and 3 (from 3) at 3 and 4, gradients at 4 and 5.
  CHECK(two.run().step_ms == Approx(5));
}

TEST_CASE("each link takes its own latency and speed", "[scheduler]") {
  const auto plan = over_all_links();
  REQUIRE(plan.stages.size() == 5);
  IterationInput input;
  input.samples = {sample(0, 0, 10)};
  input.microbatches = assign_by_count(plan, 1, 1);
  const auto iteration = plan_iteration(plan, input).value();
  // One microbatch: 5 x 1 ms forward, 5 x 2 ms backward, and every message once there and back.
  // 2,560 bytes take 0.25 ms within a device, 0.5 ms within a node, 1 ms between nodes.
  SimulationCosts costs;
  costs.task_ms = forward_one_backward_two;
  const auto step_ms = [&] { return simulate(plan, iteration, costs).value().step_ms; };
  CHECK(step_ms() == Approx(15));
  costs.device = {0.1, 0.01024};  // One message of 0.35 ms.
  CHECK(step_ms() == Approx(15 + 2 * 0.35));
  costs.node = {0.2, 0.00512};  // Two of 0.7 ms.
  CHECK(step_ms() == Approx(15 + 2 * (0.35 + 2 * 0.7)));
  costs.network = {0.4, 0.00256};  // One of 1.4 ms; commit takes two latencies.
  CHECK(step_ms() == Approx(15 + 2 * (0.35 + 2 * 0.7 + 1.4) + 2 * 0.4));
}

TEST_CASE("reductions wait for every holder and come back to each", "[scheduler]") {
  const HandLayout layout{
      {{{0, 0, {{"llm", {}}}}}, {{1, 0, {{"llm", {}}}}}, {{2, 0, {{"llm", {}}}}}}};
  const auto plan = place_by_hand(text_llm(1), layout, {3, 1}).value();
  IterationInput input;
  for (int i = 0; i < 3; ++i) input.samples.push_back(sample(0, 0));
  input.microbatches = assign_by_count(plan, 3, 1);
  const auto iteration = plan_iteration(plan, input).value();
  SimulationCosts costs;
  costs.task_ms = [](StageId stage, const auto&, TaskKind) { return 1.0 + stage.value; };
  costs.network = {1, 4e-5};            // 10 elements x 4 bytes: 1 ms.
  costs.reduce_gigabytes_per_s = 4e-5;  // 1 ms per other holder.
  // The slowest replica is done at 3 + 3 = 6; its gradient is there at 8, summed at 10; the results
  // leave until 11 and 12, are there at 12 and 13; commit 2.
  CHECK(simulate(plan, iteration, costs).value().step_ms == Approx(15));
}

/// A step of two copies of an llm of one layer, a sample each; passes of copy i take 1 + i ms.
double step_of_two_copies(const ModelGraph& model, const HandLayout& layout,
                          SimulationCosts costs) {
  const auto plan = place_by_hand(model, layout, {2, 1}).value();
  IterationInput input;
  for (int i = 0; i < 2; ++i) input.samples.push_back(sample(0, 0));
  input.microbatches = assign_by_count(plan, 2, 1);
  const auto iteration = plan_iteration(plan, input).value();
  costs.task_ms = [](StageId stage, const auto&, TaskKind) { return 1.0 + stage.value; };
  return simulate(plan, iteration, costs).value().step_ms;
}

TEST_CASE("a sum waits for a holder on a device that is looked at later", "[scheduler]") {
  // The first holder is on the last device, which the simulation looks at first. It is done at 1 +
  // 1 = 2, the other one at 2 + 2 = 4; that gradient is there at 6, summed at 7, back at 9;
  // commit 2.
  const HandLayout layout{{{{1, 0, {{"llm", {}}}}}, {{0, 0, {{"llm", {}}}}}}};
  SimulationCosts costs;
  costs.network = {1, 4e-5};
  costs.reduce_gigabytes_per_s = 4e-5;
  CHECK(step_of_two_copies(text_llm(1), layout, costs) == Approx(11));
}

TEST_CASE("gradients are added up in a type of their own", "[scheduler]") {
  // As above with rows of 2 bytes, which nothing sends here. With gradients of 8 each way takes 2
  // ms, and so does the sum: it is there at 7, summed at 9, back at 12; commit 2.
  const HandLayout layout{{{{1, 0, {{"llm", {}}}}}, {{0, 0, {{"llm", {}}}}}}};
  SimulationCosts costs;
  costs.network = {1, 4e-5};
  costs.reduce_gigabytes_per_s = 4e-5;
  costs.bytes_per_element = 2;
  CHECK(step_of_two_copies(text_llm(1), layout, costs) == Approx(11));
  costs.summed_bytes_per_element = 8;
  CHECK(step_of_two_copies(text_llm(1), layout, costs) == Approx(14));
}

TEST_CASE("a large sum goes in chunks, each way half of its bytes", "[scheduler]") {
  // 80,000 bytes in two chunks of a millisecond each. Device 0 is done at 2, device 1 at 4; its
  // chunk is there at 6, sums are back at 8; commit 2.
  auto model = text_llm(1);
  model.modules[0].layers[0].parameter_elements = 20'000;
  const HandLayout layout{{{{0, 0, {{"llm", {}}}}}, {{1, 0, {{"llm", {}}}}}}};
  SimulationCosts costs;
  costs.network = {1, 4e-2};
  CHECK(step_of_two_copies(model, layout, costs) == Approx(10));
}

TEST_CASE("a tree sends sums between nodes once and adds in two places", "[scheduler]") {
  // Copies on nodes 0, 0, 1 and 1; one chunk of 10 elements (40 bytes), owned by device 0. Without
  // samples: 1 ms inside a node, and 3 between nodes, of one holder's part; 2 to add it.
  auto plan = place_by_hand(text_llm(1),
                            {{{{0, 0, {{"llm", {}}}}},
                              {{0, 1, {{"llm", {}}}}},
                              {{1, 0, {{"llm", {}}}}},
                              {{1, 1, {{"llm", {}}}}}}},
                            {2, 2})
                  .value();
  SimulationCosts costs;
  costs.node = {0, 4e-5};
  costs.network = {0, 4e-5 / 3};
  costs.reduce_gigabytes_per_s = 2e-5;
  const auto step_ms = [&](SumOrder order) {
    plan.groups[0].order = order;
    IterationInput input;
    input.microbatches = assign_by_count(plan, 0, 1);
    return simulate(plan, plan_iteration(plan, input).value(), costs).value().step_ms;
  };
  // Chain: parts are there at 3, added to one another at 9; the sums leave for node 1 one after the
  // other: 15. Tree: device 3's part is at device 2 at 1, added at 3, at device 0 at 6; two are
  // added to its own by 10; the sum is at device 2 at 13 and at device 3 at 14.
  CHECK(step_ms(SumOrder::chain) == Approx(15));
  CHECK(step_ms(SumOrder::tree_by_node) == Approx(14));
}

TEST_CASE("a standby holder's sums, update and state take their time and room", "[scheduler]") {
  // One layer of 10 elements on node 0, kept on node 1 too. Passes end at 3; the sum of one holder
  // takes nothing and is at the other one at 5; commit 2; its update 4, the stage's own 1.
  auto plan = place_by_hand(text_llm(1), {{{{0, 0, {{"llm", {}}}}}}}, {1, 1}).value();
  plan.devices.push_back({NodeId{1}, 0});
  plan = add_standbys(plan, {1, Dtype::fp32}).value();
  IterationInput input;
  input.samples.push_back(sample(0, 0));
  input.microbatches = assign_by_count(plan, 1, 1);
  const auto iteration = plan_iteration(plan, input).value();
  SimulationCosts costs;
  costs.task_ms = [](StageId, const auto&, TaskKind kind) {
    return kind == TaskKind::forward ? 1.0 : 2.0;
  };
  costs.network = {1, 4e-5};
  costs.reduce_gigabytes_per_s = 4e-5;
  costs.optimizer_ms = [](StageId) { return 1.0; };
  costs.standby_optimizer_ms = [](DeviceId device) { return 4.0 * device.value; };
  costs.state_bytes = [](StageId) { return 100.0; };
  costs.standby_bytes = [](DeviceId device) { return 30.0 * device.value; };
  const auto step = simulate(plan, iteration, costs).value();
  CHECK(step.step_ms == Approx(11));
  CHECK(step.stage_ms == std::vector<double>{4});
  CHECK(step.peak_memory_bytes == std::vector<double>{100, 30});
}

TEST_CASE("peak memory is state, parts in flight and what came for them", "[scheduler]") {
  TwoNodes two;
  // Messages have 2,560 bytes. Device 0 from 4 to 6: parts 0 and 1 and the gradient of part 0.
  // Device 1 from 2 to 4: part 0 with its rows, and those of part 1, which wait.
  two.costs.state_bytes = [](StageId stage) { return 1000.0 * (stage.value + 1); };
  two.costs.activation_bytes = [](StageId, const auto& samples) {
    return 10.0 * static_cast<double>(samples.size());
  };
  CHECK(two.run().peak_memory_bytes == std::vector<double>{1000 + 20 + 2560, 2000 + 10 + 2 * 2560});
}

TEST_CASE("a node that fails stops the step, one that fails later does not", "[scheduler]") {
  const TwoNodes two;
  SimulationOptions options;
  options.failures = {{NodeId{1}, 5.5}};
  const auto lost = two.run(options);
  CHECK_FALSE(lost.completed);
  CHECK(lost.step_ms < 15);
  CHECK(lost.done[1] < static_cast<std::int64_t>(two.iteration.actions[1].size()));
  options.failures = {{NodeId{1}, 15.5}};
  CHECK(two.run(options).completed);
}

TEST_CASE("noise comes from the seed and keeps the mean", "[scheduler]") {
  const TwoNodes two;
  SimulationOptions options;
  options.noise = 0.1;
  double work = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    options.seed = seed;
    const auto step = two.run(options);
    CHECK(two.run(options).step_ms == step.step_ms);
    CHECK(step.step_ms != 15);
    work += step.stage_ms[0] / 500;
  }
  CHECK(work == Approx(12).epsilon(0.01));
}

TEST_CASE("the timeline lists every action in order", "[scheduler]") {
  const TwoNodes two;
  SimulationOptions options;
  options.record_timeline = true;
  const auto step = two.run(options);
  std::size_t count = 0;
  for (const auto& list : two.iteration.actions) count += list.size();
  REQUIRE(step.events.size() == count);
  for (std::size_t i = 1; i < count; ++i)
    if (step.events[i].device == step.events[i - 1].device) {
      CHECK(step.events[i].index == step.events[i - 1].index + 1);
      CHECK(step.events[i].begin_ms >= step.events[i - 1].end_ms);
    }
}

TEST_CASE("the simulator agrees with the list scheduler on random plans", "[scheduler][property]") {
  int relayed = 0;
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    auto random = random_case(seed);
    random.input.task_cost = [&](StageId stage, const std::vector<std::int32_t>& samples,
                                 TaskKind kind) {
      return 1.0 + stage.value % 3 + static_cast<double>(samples.size()) +
             (kind == TaskKind::forward ? 0 : 2);
    };
    const auto iteration = plan_iteration(random.plan, random.input).value();
    const RowFlow flow(random.plan.model,
                       SampleUnits(iteration.samples, iteration.pieces).shapes());
    const auto graph =
        iteration_graph(random.plan, flow, iteration.microbatches, iteration.messages,
                        splits_weight_gradient(random.input.schedule), random.input.task_cost,
                        [](const Message&) { return 0.0; });
    const auto timeline = make_schedule(graph.tasks, random.input.schedule).value();
    SimulationCosts costs;
    costs.task_ms = random.input.task_cost;
    const auto step = simulate(random.plan, iteration, costs).value();
    INFO("seed " << seed << " " << random.input.schedule.name);
    CHECK(step.completed);
    // Rows that pass through a device wait there for what it computes.
    if (std::ranges::any_of(iteration.messages, [](const Message& m) { return m.relay.valid(); })) {
      CHECK(step.step_ms >= timeline.step_ms - 1e-9);
      ++relayed;
    } else {
      CHECK(step.step_ms == Approx(timeline.step_ms).margin(1e-9));
    }
  }
  CHECK(relayed > 5);
}

TEST_CASE("a plan that cannot run is refused", "[scheduler][errors]") {
  TwoNodes two;
  std::swap(two.iteration.actions[0][0], two.iteration.actions[0][5]);
  auto broken = two.iteration;
  broken.actions.pop_back();
  CHECK(simulate(two.plan, broken, two.costs).error().code == Errc::invalid_argument);
  broken = two.iteration;
  broken.actions[0][0].message = MessageId{99};
  CHECK(simulate(two.plan, broken, two.costs).error().code == Errc::invalid_argument);
  // Without its first send, the second device waits for ever.
  broken = TwoNodes{}.iteration;
  std::erase_if(broken.actions[0], [](const Action& a) { return a.kind == ActionKind::send; });
  CHECK(simulate(two.plan, broken, two.costs).error().code == Errc::internal);
  two.costs.network.latency_ms = -1;
  CHECK(simulate(two.plan, TwoNodes{}.iteration, two.costs).error().code == Errc::invalid_argument);
}

}  // namespace
}  // namespace troupe::scheduler
