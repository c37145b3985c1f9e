#include "engine/layout/asked_layout.hpp"

#include "engine/layout/choose_layout.hpp"
#include "engine/profiling/nominal_profile.hpp"
#include "engine/state/state_memory.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/torch_catch.hpp"

namespace troupe::engine {
namespace {

const std::set<NodeId> kAll{NodeId{0}, NodeId{1}, NodeId{2}, NodeId{3}};

DeviceRooms rooms_of(const JobSetup& setup) { return {memory_at_hand(setup.job.cluster)}; }

HandLayout one_pipeline_on(std::int32_t encoder, std::int32_t llm) {
  return {{{{encoder, 0, {{"vision", {}}}}, {llm, 0, {{"llm", {}}}}}}};
}

std::vector<SampleShape> shapes(const JobSetup& setup, const ParallelPlan& plan) {
  SampleStore store;
  return plan_tiny_batch(setup, plan, store).value().iteration.samples;
}

TEST_CASE("a layout that is asked for leaves nodes without work, or on standby", "[engine]") {
  job::Job job = tiny_job();
  auto setup = prepare(job).value();
  const auto plan = make_parallel_plan(setup).value();
  const auto made =
      plan_asked_layout(setup, one_pipeline_on(3, 1), plan, kAll, rooms_of(setup)).value();
  CHECK((made.plan.nodes() == std::set<NodeId>{NodeId{1}, NodeId{3}}));
  CHECK((made.idle == std::set<NodeId>{NodeId{0}, NodeId{2}}));

  setup.job.cluster.fault_tolerance = 1;
  const auto safe = plan_asked_layout(setup, one_pipeline_on(3, 1), plan,
                                      {NodeId{0}, NodeId{1}, NodeId{3}}, rooms_of(setup))
                        .value();
  CHECK_FALSE(safe.plan.standbys.empty());
  CHECK_FALSE(safe.plan.nodes().contains(NodeId{2}));  // It is not there.

  setup.job.cluster.fault_tolerance = 0;
  setup.job.cluster.spares = 1;
  const auto spare =
      plan_asked_layout(setup, one_pipeline_on(3, 1), plan, kAll, rooms_of(setup)).value();
  CHECK((spare.plan.nodes() == std::set<NodeId>{NodeId{1}, NodeId{2}, NodeId{3}}));
  CHECK((spare.idle == std::set<NodeId>{NodeId{0}}));
}

TEST_CASE("a layout that no device has room for is refused", "[engine][errors]") {
  job::Job job = tiny_job();
  const auto plan = make_parallel_plan(prepare(job).value()).value();
  std::int64_t room = 1;
  job.cluster.device_memory_gib = 1;
  while (!check_state_memory(job, plan, Bytes{room}).ok()) room += 64;
  job.cluster.device_memory_gib = static_cast<double>(room) / 1024 / 1024 / 1024;
  const auto setup = prepare(job).value();
  const HandLayout all_on_one{{{{0, 0, {{"vision", {}}, {"llm", {}}}}}}};
  const auto made = plan_asked_layout(setup, all_on_one, plan, kAll, rooms_of(setup));
  REQUIRE_FALSE(made.ok());
  CHECK(made.error().code == Errc::infeasible);
  CHECK(made.error().message.find("device 0 of node 0") != std::string::npos);
}

TEST_CASE("a layout that is asked for goes by the memory that its own nodes have",
          "[engine][errors]") {
  const auto setup = prepare(tiny_job()).value();
  const auto plan = make_parallel_plan(setup).value();
  DeviceRooms rooms = rooms_of(setup);
  rooms.own[NodeId{3}] = Bytes{1000};
  const auto made = plan_asked_layout(setup, one_pipeline_on(3, 1), plan, kAll, rooms);
  // Node 3 is one of this machine's, whose memory all of them share.
  CHECK(made.ok());
  auto apart = setup;
  apart.job.cluster.local_nodes = 0;
  const auto refused = plan_asked_layout(apart, one_pipeline_on(3, 1), plan, kAll, rooms);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message.find("node 3") != std::string::npos);
  CHECK(plan_asked_layout(apart, one_pipeline_on(2, 1), plan, kAll, rooms).ok());
}

TEST_CASE("a step is planned on a layout before it is taken up", "[engine]") {
  auto setup = prepare(tiny_job()).value();
  const auto plan = make_parallel_plan(setup).value();
  const auto other =
      plan_asked_layout(setup, one_pipeline_on(3, 1), plan, kAll, rooms_of(setup)).value().plan;
  const auto samples = shapes(setup, plan);
  CHECK(rehearse(setup, other, samples).ok());
  // A microbatch of one sample is more than a device has beside the state.
  setup.costs = planning_costs(setup, nominal_profile(setup), Bytes{1000}).value();
  const auto refused = rehearse(setup, other, samples);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::infeasible);
}

}  // namespace
}  // namespace troupe::engine
