#include "tests/bench/ablation_ranks.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <map>
#include <utility>
#include <vector>

#include "scheduler/simulate/simulate_plan.hpp"
#include "tests/bench/group_waits.hpp"

using namespace troupe;
using namespace troupe::bench;
using Catch::Approx;

namespace {

constexpr std::size_t kRanks = 16, kMiniBatch = 24;  // Two nodes.

nlohmann::json table() {
  std::ifstream file("experiments/orchmllm/section-8.json");
  return nlohmann::json::parse(file);
}

/// By name, of the first model of the paper.
std::map<std::string, AblatedStep> steps(std::uint64_t seed,
                                         const std::vector<Ablation>& asked = ablations()) {
  const auto inputs = table();
  const auto costs = paper_costs("mllm-10b", inputs);
  REQUIRE(costs.ok());
  const auto ranks = AblationRanks::create(
      costs.value(), inputs, inputs.at("models").at("mllm-10b"), kRanks, kMiniBatch, seed);
  REQUIRE(ranks.ok());
  std::map<std::string, AblatedStep> found;
  for (const Ablation& ablation : asked) {
    const auto step = ranks.value().step(ablation);
    REQUIRE(step.ok());
    found[ablation.name] = step.value();
  }
  return found;
}

/// An llm on two devices, forward 1 and 5 ms, backward 2 ms on both.
struct TwoRanks {
  TwoRanks() {
    plan.model.modules = {{"llm", ModuleKind::llm, false, {}, {{"llm.0", 1}}, 1, 1}};
    plan.module_groups = {{"llm", {ModuleId{0}}}};
    for (std::size_t d = 0; d < 2; ++d) {
      plan.devices.push_back({NodeId{0}, static_cast<std::int32_t>(d)});
      plan.pipelines.push_back({{ReplicaId{d}}});
      plan.replicas.push_back({ModuleGroupId{0}, PipelineId{d}, {StageId{d}}});
      plan.stages.push_back({ReplicaId{d}, {{ModuleId{0}, {0, 1}}}, {DeviceId{d}}});
      iteration.microbatches.push_back({Microbatch{{Part{{static_cast<std::int32_t>(d)}}}}});
      std::vector<Action> list;
      for (const auto kind : {ActionKind::forward, ActionKind::backward})
        list.push_back({kind, StageId{d}, MicrobatchId{0}, PartId{0}, {}, {}});
      iteration.actions.push_back(std::move(list));
    }
  }

  scheduler::SimulatedStep run() const {
    scheduler::SimulationCosts costs;
    costs.task_ms = [](StageId stage, const auto&, scheduler::TaskKind kind) {
      return kind == scheduler::TaskKind::backward ? 2.0 : stage == StageId{0} ? 1.0 : 5.0;
    };
    scheduler::SimulationOptions options;
    options.record_timeline = true;
    auto step = scheduler::simulate(plan, iteration, costs, options);
    REQUIRE(step.ok());
    return std::move(step).value();
  }

  /// When the first device is through.
  double first_end() const {
    double end = 0;
    for (const auto& event : run().events)
      if (event.device == DeviceId{0}) end = std::max(end, event.end_ms);
    return end;
  }

  ParallelPlan plan;
  IterationPlan iteration;
};

}  // namespace

TEST_CASE("Ablations leave out what they name", "[bench]") {
  const auto found = steps(0);

  const AblatedStep& all = found.at("all");
  CHECK(found.size() == ablations().size());
  for (const auto of : {&AblatedStep::alone, &AblatedStep::in_groups}) {
    const auto step_ms = [&](const char* name) { return (found.at(name).*of).step_ms; };
    CHECK(step_ms("all") < step_ms("no phase balanced"));
    CHECK(step_ms("all") < step_ms("LLM alone"));
    CHECK(step_ms("all") < step_ms("vision alone"));
    CHECK(step_ms("all") < step_ms("audio alone"));
    // Rows that pass who drew the sample are sent twice; of 16 ranks most of that is hidden.
    CHECK(step_ms("all") < 1.001 * step_ms("all, composition off"));
  }
  // Of two nodes about half of the rows are wanted on the other one where nobody looks.
  const AblatedStep& anywhere = found.at("all, node-wise off");
  CHECK(anywhere.vision_far_rows > 0.25);
  CHECK(all.vision_far_rows < anywhere.vision_far_rows / 2);
  CHECK(all.audio_far_rows < anywhere.audio_far_rows);
  // Encoders that are not balanced work where the sample was drawn and is trained.
  CHECK(found.at("no phase balanced").vision_far_rows == 0);
}

TEST_CASE("Utilization of even ranks is that of the device", "[bench]") {
  const auto first = steps(1), again = steps(1);

  // 0.6 of the peak is what layers attain; nothing computes faster.
  for (const auto& [name, step] : first) {
    CAPTURE(name);
    CHECK(step.in_groups.utilization > 0);
    CHECK(step.in_groups.utilization <= step.alone.utilization);
    CHECK(step.alone.utilization < 60);
    CHECK(step.alone.step_ms == again.at(name).alone.step_ms);
  }
  CHECK(first.at("all").in_groups.utilization > 50);
}

TEST_CASE("Ranks that wait for their group begin a phase when all of it come", "[bench]") {
  // By hand: alone the step is the second one's, 7 ms, and the first device is through after 3; in
  // a group it begins its backward at 5, which ends at 7.
  TwoRanks ranks;
  CHECK(ranks.first_end() == 3);

  const auto alone = ranks.iteration;
  wait_in_groups(ranks.plan, 1, ranks.iteration);
  CHECK(alone == ranks.iteration);
  wait_in_groups(ranks.plan, 256, ranks.iteration);
  CHECK(ranks.first_end() == 7);
}

TEST_CASE("A forward takes until ranks are through with theirs, on average", "[bench]") {
  // By hand: 1 and 5 ms; backwards are none.
  const TwoRanks ranks;
  CHECK(forward_ms(ranks.iteration, ranks.run()) == 3);

  for (const auto& [name, step] : steps(2)) {
    CAPTURE(name);
    CHECK(step.alone.forward_ms > 0);
    CHECK(step.alone.forward_ms <= step.in_groups.forward_ms);
    // Backwards take about twice as long.
    CHECK(step.in_groups.forward_ms < 0.5 * step.in_groups.step_ms);
  }
}

TEST_CASE("Sounds that are padded take longer and are no more work", "[bench]") {
  const auto packed = steps(3), padded = steps(3, padded_ablations());

  CHECK(padded.size() == padded_ablations().size());
  const auto& drawn = packed.at("no phase balanced");
  const auto& drawn_padded = padded.at("sounds padded, no phase balanced");
  const auto& by_sums = padded.at("sounds padded, both encoders dealt as packed");
  const auto& by_rule = padded.at("sounds padded, each encoder by its own rule");
  for (const auto of : {&AblatedStep::alone, &AblatedStep::in_groups}) {
    CHECK((drawn.*of).step_ms < (drawn_padded.*of).step_ms);
    // The same samples: what utilization counts is the same, in less time or more.
    CHECK((drawn_padded.*of).utilization * (drawn_padded.*of).step_ms ==
          Approx((drawn.*of).utilization * (drawn.*of).step_ms));
    CHECK((by_rule.*of).step_ms < (by_sums.*of).step_ms);
    CHECK((by_rule.*of).step_ms < (drawn_padded.*of).step_ms);
    CHECK((by_rule.*of).utilization > (by_sums.*of).utilization);
  }
}
