#include "tests/torch_catch.hpp"

#include "engine/execution/standby_state.hpp"
#include "engine/layout/choose_layout.hpp"

#include <ATen/ops/equal.h>

#include <map>
#include <utility>
#include <vector>

#include "scheduler/state/standby_holders.hpp"
#include "tests/engine/tiny_cluster.hpp"

namespace troupe::engine {
namespace {

/// The tiny job as one pipeline on two of the four nodes.
job::Job one_pipeline() {
  job::Job job = tiny_job();
  job.parallel.layout.pipelines = {
      {{0, 0, {{"vision", {}}, {"llm", LayerRange{0, 2}}}}, {1, 0, {{"llm", LayerRange{2, 4}}}}}};
  job.cluster.nodes = 2;
  return job;
}

/// All four nodes hold everything; those beyond the plan's without a stage.
ParallelPlan held_by_all(ParallelPlan plan) {
  while (plan.devices.size() < 4) plan.devices.push_back({NodeId{plan.devices.size()}, 0});
  return scheduler::add_standbys(std::move(plan), {3, Dtype::fp64}).value();
}

/// The four nodes, those beyond the plan's with nothing to do.
ParallelPlan held_by_stages(ParallelPlan plan) {
  while (plan.devices.size() < 4) plan.devices.push_back({NodeId{plan.devices.size()}, 0});
  return plan;
}

TEST_CASE("standby holders agree with all others after COMMIT and change no bit", "[engine]") {
  for (auto job : {tiny_job(), one_pipeline()})
    for (const auto& [dtype, offloads] :
         {std::pair{Dtype::fp64, "off"}, std::pair{Dtype::bf16, "off"},
          std::pair{Dtype::fp64, "moments"}, std::pair{Dtype::bf16, "moments"}}) {
      CAPTURE(job.cluster.nodes, static_cast<int>(dtype), offloads);
      job.train.dtype = dtype;
      auto offloading = job;
      offloading.scheduler.offload_encoders = offloads;
      Cluster alone(job, {}, {}, held_by_stages), safe(offloading, {}, {}, held_by_all);
      for (Cluster* cluster : {&alone, &safe})
        for (const std::int64_t batch : {0, 1}) cluster->train(batch);
      const auto expected = alone.parameters(), found = safe.parameters();
      REQUIRE(found.size() == expected.size());
      for (std::size_t i = 0; i < found.size(); ++i) CHECK(at::equal(found[i], expected[i]));
      std::map<GroupId, std::map<std::uint64_t, int>> hashes;
      for (std::size_t device = 0; device < 4; ++device)
        for (const auto& holder : safe.executor(device).take_report().hashes)
          ++hashes[holder.group][holder.hash];
      CHECK(hashes.size() == safe.plan().groups.size());
      for (const auto& [group, own] : hashes) {
        REQUIRE(own.size() == 1);
        CHECK(own.begin()->second == 4);
      }
      // Masters and moments too: what a stage would go on from.
      for (std::size_t device = 0; device < 4; ++device)
        for (const auto& [group, kept] : safe.standby(device).groups()) {
          ParameterShard& first = safe.state(group, 0);
          REQUIRE(kept->optimizers().size() == first.optimizers().size());
          for (std::size_t p = 0; p < first.optimizers().size(); ++p) {
            const state::AdamWState& own = kept->optimizers()[p];
            const state::AdamWState& other = first.optimizers()[p];
            CHECK(kept->parameters()[p]->name == first.parameters()[p]->name);
            CHECK(at::equal(own.exp_avg, other.exp_avg));
            CHECK(at::equal(own.exp_avg_sq, other.exp_avg_sq));
            CHECK(own.master.defined() == (dtype == Dtype::bf16));
            if (own.master.defined()) CHECK(at::equal(own.master, other.master));
          }
        }
    }
}

TEST_CASE("a standby holder changes nothing before COMMIT, and nothing at DISCARD", "[engine]") {
  Cluster cluster(one_pipeline(), {}, {}, held_by_all);
  const auto hashes = [&] {
    std::vector<std::uint64_t> list;
    for (std::size_t device = 0; device < 4; ++device)
      for (const auto& [group, kept] : cluster.standby(device).groups())
        list.push_back(kept->hash());
    return list;
  };
  const auto before = hashes();
  CHECK(before.size() == 3 * cluster.plan().groups.size());
  cluster.begin(0);
  REQUIRE(cluster.advance_to(Progress::committing).ok());
  CHECK(cluster.executor(3).prepared().norms.empty());
  CHECK(cluster.executor(3).prepared().losses.empty());
  CHECK(hashes() == before);
  cluster.decide({1, false, 1, 0, "a test says so"});
  REQUIRE(cluster.advance_to(Progress::finished).ok());
  CHECK(hashes() == before);
  CHECK(cluster.executor(3).take_report().hashes.empty());
}

TEST_CASE("a store without what a device is on standby for is an error", "[engine][errors]") {
  const JobSetup setup = prepare(tiny_job()).value();
  const auto plan = held_by_all(make_parallel_plan(setup).value());
  const StateStore empty(plan.devices[3], setup.parameters, Dtype::fp64);
  const auto made = StandbyState::create(plan, DeviceId{3}, empty, setup.modules());
  REQUIRE_FALSE(made.ok());
  CHECK(made.error().code == Errc::internal);
}

}  // namespace
}  // namespace troupe::engine
