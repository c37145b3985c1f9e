#include "tests/bench/boundary_overhead.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

using namespace troupe;
using namespace troupe::bench;
using Catch::Approx;

namespace {

/// Two ranks with an encoder and an llm each, on one node or on two. Each encodes what the other
/// one trains.
struct TwoRanks {
  explicit TwoRanks(bool apart) {
    const ModuleId encoder{0}, llm{1};
    plan.model.modules = {{"audio", ModuleKind::encoder, false, {llm}, {{"audio.0", 1}}, 1, 1},
                          {"llm", ModuleKind::llm, false, {}, {{"llm.0", 1}}, 1, 1}};
    plan.module_groups = {{"audio", {encoder}}, {"llm", {llm}}};
    for (std::size_t d = 0; d < 2; ++d) {
      plan.devices.push_back({NodeId{apart ? d : 0}, static_cast<std::int32_t>(apart ? 0 : d)});
      Pipeline& pipeline = plan.pipelines.emplace_back();
      for (std::size_t g = 0; g < 2; ++g) {
        const ReplicaId replica{2 * d + g};
        pipeline.replicas.push_back(replica);
        plan.replicas.push_back({ModuleGroupId{g}, PipelineId{d}, {StageId{2 * d + g}}});
        plan.stages.push_back({replica, {{ModuleId{g}, {0, 1}}}, {DeviceId{d}}});
        const auto sample = static_cast<std::int32_t>(g == 0 ? 1 - d : d);
        microbatches.push_back({Microbatch{{Part{{sample}}}}});
      }
    }
    for (auto& work : works) {
      work.samples = work.rows = {7, 7};  // Whatever the unit.
      work.shares = {1, 1};
    }
  }

  ParallelPlan plan;
  std::vector<MicrobatchList> microbatches;
  std::vector<engine::PhaseWork> works = std::vector<engine::PhaseWork>(2);
};

// 2 MB of rows, or of gradients: 1 ms between nodes.
constexpr StageSizes kSizes{.stage_ms = 30, .rows = 1000, .columns = 1000};

scheduler::DeviceSpeeds network_of(double gigabytes_per_s) {
  scheduler::DeviceSpeeds speeds;
  speeds.network.gigabytes_per_s = gigabytes_per_s;
  return speeds;
}

}  // namespace

TEST_CASE("what nobody computes beside makes a step longer", "[bench]") {
  // By hand: both encode for 10 ms, wait 1, train for 30, wait 1 for gradients, and end 20 later.
  const TwoRanks ranks(true);

  const auto step =
      boundary_step(ranks.plan, ranks.works, ranks.microbatches, kSizes, network_of(2));

  REQUIRE(step.ok());
  CHECK(step.value().alone_ms == Approx(60));
  CHECK(step.value().step_ms == Approx(62));
  CHECK(step.value().overhead() == Approx(2.0 / 60));
}

TEST_CASE("rows inside a node do not use the network", "[bench]") {
  const TwoRanks ranks(false);

  const auto step =
      boundary_step(ranks.plan, ranks.works, ranks.microbatches, kSizes, network_of(0.001));

  REQUIRE(step.ok());
  CHECK(step.value().step_ms == step.value().alone_ms);
}
