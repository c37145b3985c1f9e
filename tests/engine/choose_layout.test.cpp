#include "engine/layout/choose_layout.hpp"

#include <set>

#include "engine/profiling/nominal_profile.hpp"
#include "engine/profiling/profile_data.hpp"
#include "runtime/data/made/demo_data.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/runtime/data/temp_folder.hpp"
#include "tests/torch_catch.hpp"

namespace troupe::engine {
namespace {

/// The tiny job on demo data, without a layout, on so many nodes of one device.
struct OpenJob {
  data::TempFolder folder;
  job::Job job = tiny_job();

  explicit OpenJob(std::int32_t nodes) {
    const auto made = data::make_demo_data(folder.path(), {.samples = 20, .seed = 3});
    REQUIRE(made.ok());
    job.data.sources.resize(1);
    job.data.sources[0].json = made.value().json;
    job.data.sources[0].format = "llava";
    job.job.name = "open";
    job.job.run_dir = folder.path() / "runs" / "open";
    job.parallel.mode = job::LayoutMode::automatic;
    job.parallel.layout = {};
    job.cluster.nodes = job.cluster.local_nodes = nodes;
  }

  Result<JobLayout> choose() const { return choose_layout(prepare(job).value()); }
};

std::size_t devices_used(const ParallelPlan& plan) {
  std::set<DeviceId> devices;
  for (const auto& stage : plan.stages) devices.insert(stage.devices.begin(), stage.devices.end());
  return devices.size();
}

TEST_CASE("a layout that is left open is chosen, with reasons", "[engine]") {
  const OpenJob open(2);
  const auto layout = open.choose();
  REQUIRE(layout.ok());
  CHECK(devices_used(layout.value().plan) == 2);
  CHECK_FALSE(layout.value().reasons.empty());
  CHECK(layout.value().predicted_step_ms > 0);
  // Every process that plans the job plans it so.
  CHECK((open.choose().value().plan == layout.value().plan));
  CHECK((make_parallel_plan(prepare(open.job).value()).value() == layout.value().plan));
}

TEST_CASE("a layout on grids is planned and not trained", "[engine][errors]") {
  OpenJob open(1);
  open.job.cluster.devices_per_node = 2;
  open.job.parallel.mode = job::LayoutMode::manual;
  HandStage stage{.node = 0, .runs = {}, .devices = {0, 1}, .tp = 2};
  for (const auto& module : open.job.modules) stage.runs.push_back({module.name, {}});
  open.job.parallel.layout.pipelines = {{stage}};
  const auto refused = open.choose();
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::unavailable);
  CHECK(refused.error().message.find("tp 2") != std::string::npos);
  open.job.debug.layouts = {{2, open.job.parallel.layout}};
  const auto later = later_layouts(prepare(open.job).value());
  CHECK(later.error().code == Errc::unavailable);
  CHECK(later.error().where == "debug.layouts[0]");
}

TEST_CASE("layouts are compared with batches cut as training cuts them", "[engine]") {
  OpenJob open(2);
  open.job.balancer.policy = "deferral-chain";
  const auto layout = open.choose();
  REQUIRE(layout.ok());
  const auto setup = prepare(open.job).value();
  const auto costs =
      planning_costs(setup, profile_at_hand(setup).value(), memory_at_hand(setup.job.cluster))
          .value();
  const auto judge =
      training_judge(setup, *costs, draw_shapes(setup, kLayoutSamples, open.job.job.seed).value());
  CHECK(judge(layout.value().plan).value().step_ms == layout.value().predicted_step_ms);
  open.job.balancer.policy = "deferal";
  CHECK(open.choose().error().code == Errc::not_found);
}

/// Replicas of the group that a module is in.
std::size_t replicas_of(const ParallelPlan& plan, const std::string& module) {
  const auto group = plan.group_of(plan.model.find(module));
  std::size_t count = 0;
  for (const auto& replica : plan.replicas) count += replica.group == group ? 1 : 0;
  return count;
}

TEST_CASE("pinned degrees are kept by a chosen layout", "[engine]") {
  OpenJob open(4);
  for (const std::int32_t dp : {1, 2, 4}) {
    open.job.parallel.modules["llm"] = {{}, {}, {}, dp};
    const auto layout = open.choose();
    REQUIRE(layout.ok());
    CHECK(replicas_of(layout.value().plan, "llm") == static_cast<std::size_t>(dp));
    CHECK(devices_used(layout.value().plan) == 4);
  }
  open.job.parallel.modules["llm"] = {2, {}, {}, {}};
  const auto refused = open.choose();
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::infeasible);
  CHECK(refused.error().where == "parallel.llm.tp");
}

TEST_CASE("modules may be pinned to numbers that differ", "[engine]") {
  OpenJob open(4);
  open.job.parallel.modules["vision"].dp = 3;
  open.job.parallel.modules["llm"].dp = 1;
  const auto layout = open.choose();
  REQUIRE(layout.ok());
  CHECK(replicas_of(layout.value().plan, "vision") == 3);
  CHECK(replicas_of(layout.value().plan, "llm") == 1);
  CHECK(devices_used(layout.value().plan) == 4);
  CHECK(layout.value().reasons.front().choice == "3 replicas of vision, 1 of llm");
  open.job.parallel.modules["llm"].dp = 2;
  CHECK(open.choose().error().where == "parallel.vision.dp");
}

TEST_CASE("what a job cuts otherwise than the search is judged", "[engine]") {
  auto job = tiny_job();
  CHECK_FALSE(needs_judge(job));
  job.balancer.exchange = "per-phase";
  CHECK(needs_judge(job));
  job.balancer.exchange = "off";
  job.balancer.policy = "deferral";
  CHECK(needs_judge(job));
}

TEST_CASE("numbers that need the same devices are chosen for schedules of phases", "[engine]") {
  OpenJob open(4);
  open.job.parallel.modules["vision"].dp = 4;
  open.job.parallel.modules["llm"].dp = 2;
  CHECK(open.choose().error().code == Errc::infeasible);
  open.job.scheduler.schedule = "three-phase";
  open.job.scheduler.max_in_flight = 1;
  const auto made = open.choose();
  REQUIRE(made.ok());
  CHECK(devices_used(made.value().plan) == 4);
  CHECK(scheduler::encoder_placement(made.value().plan) == scheduler::EncoderPlacement::shared);
  // Windows are as the job bounds them in the search, too.
  const auto setup = prepare(open.job).value();
  CHECK(layout_request(setup, {}, {}).max_in_flight == 1);
}

TEST_CASE("templates for losses are drawn from the data before a batch is planned", "[engine]") {
  OpenJob open(2);
  auto setup = prepare(open.job).value();
  const ParallelPlan plan = make_parallel_plan(setup).value();
  setup.costs =
      planning_costs(setup, nominal_profile(setup), memory_at_hand(open.job.cluster)).value();
  const auto drawn = draw_templates(setup, plan);
  REQUIRE(drawn.ok());
  CHECK_FALSE(drawn.value().templates.empty());
  const auto samples = draw_shapes(setup, kLayoutSamples, open.job.job.seed).value();
  CHECK(drawn.value().layer_ms == templates_for_losses(setup, plan, samples).layer_ms);
  open.job.data.sources[0].json = "/nowhere.json";
  CHECK(draw_templates(prepare(open.job).value(), plan).error().code == Errc::not_found);
}

TEST_CASE("spare nodes stand by, where memory does for that", "[engine]") {
  OpenJob open(3);
  open.job.cluster.spares = 1;
  const auto chosen = open.choose().value();
  CHECK(chosen.plan.nodes().size() == 3);
  CHECK(chosen.reasons.back().choice == "1 spare node");
  // By hand, on nodes 0 to 3 of five.
  auto job = tiny_job();
  job.cluster.nodes = 5;
  job.cluster.spares = 1;
  const auto setup = prepare(job).value();
  const ParallelPlan plan = place_own_layout(setup).value();
  CHECK(plan.standbys.size() == scheduler::state_units(setup.model).size());
  for (const Standby& standby : plan.standbys)
    CHECK(plan.devices[standby.device.index()].node == NodeId{4});
  auto small = setup;
  small.job.cluster.device_memory_gib = 1e-9;
  CHECK(place_own_layout(small).value().standbys.empty());
  // One that works, and one that is spare.
  job.cluster.nodes = 2;
  job.parallel.layout = {};
  const ParallelPlan two = place_own_layout(prepare(job).value()).value();
  CHECK(two.standbys.size() == plan.standbys.size());
  for (const Standby& standby : two.standbys)
    CHECK(two.devices[standby.device.index()].node == NodeId{1});
}

TEST_CASE("a layout by hand and one device leave nothing to choose", "[engine]") {
  OpenJob open(1);
  open.job.data.sources[0].json = "/nowhere.json";  // Is not read.
  CHECK(open.choose().value().plan.devices.size() == 1);
  CHECK(open.choose().value().reasons.empty());
  open.job.cluster.nodes = 2;
  CHECK(open.choose().error().code == Errc::not_found);
  const auto by_hand = prepare(tiny_job()).value();
  CHECK(choose_layout(by_hand).value().plan.pipelines.size() == 2);
}

}  // namespace
}  // namespace troupe::engine
