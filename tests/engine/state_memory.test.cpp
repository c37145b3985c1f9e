#include "engine/state/state_memory.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "engine/layout/choose_layout.hpp"
#include "engine/setup/job_setup.hpp"
#include "scheduler/simulate/predicted_costs.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/torch_catch.hpp"

namespace troupe::engine {
namespace {

using Catch::Matchers::ContainsSubstring;

struct Case {
  job::Job job = tiny_job();
  ParallelPlan plan = make_parallel_plan(prepare(job).value()).value();

  Status check(double bytes) const {
    return check_state_memory(job, plan, Bytes{static_cast<std::int64_t>(bytes)});
  }

  /// The least memory of a device, in bytes, with which the check passes.
  double least() const {
    double low = 0, high = 1e12;
    while (high - low > 1) (check((low + high) / 2).ok() ? high : low) = (low + high) / 2;
    return high;
  }
};

TEST_CASE("state that the machine has no room for is refused, and says how much", "[engine]") {
  const Case tiny;
  const auto refused = tiny.check(1000);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::infeasible);
  CHECK_THAT(refused.error().message, ContainsSubstring("take") && ContainsSubstring("there are"));
  CHECK(refused.error().where == "memory");
  CHECK(tiny.check(1e9).ok());
}

TEST_CASE("what kinds of stages hold takes room, and is told", "[engine]") {
  Case own;
  const double before = own.least();
  CHECK_THAT(own.check(1000).error().message, !ContainsSubstring("kinds of stages"));
  own.plan.model.modules.front().layers.front().held_bytes = 4'000'000;
  // The two vision encoders have it; four devices share the machine's memory.
  CHECK(own.least() == Catch::Approx(before + 2 * 4e6 / 4).margin(2));
  CHECK_THAT(own.check(1000).error().message,
             ContainsSubstring("optimizer, and what kinds of stages hold besides, of the nodes"));
}

TEST_CASE("nodes of this machine share its memory, others do not", "[engine]") {
  Case shared;
  shared.job.cluster.local_nodes = shared.job.cluster.nodes;
  Case apart = shared;
  apart.job.cluster.local_nodes = 0;
  Case stated = shared;
  stated.job.cluster.device_memory_gib = 1;
  // The fullest node needs more than the mean of all.
  CHECK(apart.least() > shared.least() * 1.01);
  CHECK(stated.least() >= apart.least() - 2);
  CHECK_THAT(shared.check(1000).error().message, ContainsSubstring("the nodes of this machine"));
  CHECK_THAT(stated.check(1000).error().message, ContainsSubstring("device 0 of node"));
  CHECK(stated.check(1000).error().where == "cluster.device_memory_gib");
  CHECK_THAT(stated.check(1000).error().fix,
             Catch::Matchers::ContainsSubstring("or raise cluster.device_memory_gib"));
}

TEST_CASE("what is kept on standby takes room of its device, its gradients included", "[engine]") {
  // One pipeline on two nodes that keep each other's layers: each has room for the whole model.
  Case alone;
  alone.job.cluster.local_nodes = 0;
  alone.job.cluster.nodes = 2;
  alone.job.parallel.layout.pipelines.resize(1);
  alone.plan = make_parallel_plan(prepare(alone.job).value()).value();
  Case safe = alone;
  safe.job.cluster.fault_tolerance = 1;
  safe.plan = make_parallel_plan(prepare(safe.job).value()).value();
  Case whole = alone;
  whole.job.cluster.nodes = 1;
  whole.job.parallel.layout.pipelines = {{{0, 0, {{"vision", {}}, {"llm", {}}}}}};
  whole.plan = make_parallel_plan(prepare(whole.job).value()).value();
  CHECK(safe.least() > alone.least() * 1.1);
  CHECK(safe.least() == Catch::Approx(whole.least()).margin(2));
  CHECK_THAT(safe.check(1000).error().fix, ContainsSubstring("cluster.fault_tolerance"));
}

TEST_CASE("moments in host memory take room of a device one group at a time", "[engine]") {
  // One device has everything.
  Case kept;
  kept.job.cluster.local_nodes = 0;
  kept.job.cluster.nodes = 1;
  kept.job.cluster.device_memory_gib = 1;
  kept.job.parallel.layout.pipelines = {{{0, 0, {{"vision", {}}, {"llm", {}}}}}};
  kept.plan = make_parallel_plan(prepare(kept.job).value()).value();
  Case away = kept;
  away.job.scheduler.offload_encoders = "moments";
  away.plan = make_parallel_plan(prepare(away.job).value()).value();
  scheduler::PredictionOptions options;
  options.dtype = away.job.train.dtype;
  const auto host = scheduler::host_states(away.plan, options).front();
  REQUIRE(host.largest_bytes > 0);
  REQUIRE(host.bytes > host.largest_bytes * 1.1);
  CHECK(away.least() == Catch::Approx(kept.least() - host.bytes + host.largest_bytes).margin(4));
  // Without memory of its own a CPU's moments are in the same one, and their copies beside them.
  for (Case* each : {&kept, &away}) each->job.cluster.device_memory_gib = 0;
  CHECK(away.least() == Catch::Approx(kept.least() + host.largest_bytes).margin(4));
  for (Case* each : {&kept, &away}) each->job.cluster.device = "cuda";
  CHECK(away.least() == Catch::Approx(kept.least() - host.bytes + host.largest_bytes).margin(4));
}

TEST_CASE("copies of parameters in host memory take room of a CPU without its own", "[engine]") {
  Case kept;
  kept.job.cluster.local_nodes = 0;
  kept.job.cluster.nodes = 1;
  kept.job.scheduler.schedule = "three-phase";
  kept.job.parallel.layout.pipelines = {{{0, 0, {{"vision", {}}}}, {0, 0, {{"llm", {}}}}}};
  kept.plan = make_parallel_plan(prepare(kept.job).value()).value();
  Case away = kept;
  away.job.scheduler.offload_encoders = "parameters";
  away.plan = make_parallel_plan(prepare(away.job).value()).value();
  scheduler::PredictionOptions options;
  options.dtype = away.job.train.dtype;
  const double copies = scheduler::host_states(away.plan, options).front().parameters;
  REQUIRE(copies > 0);
  CHECK(away.least() == Catch::Approx(kept.least() + copies).margin(4));
  for (Case* each : {&kept, &away}) each->job.cluster.device_memory_gib = 1;
  CHECK(away.least() == Catch::Approx(kept.least()).margin(4));
}

TEST_CASE("what a change of layout brings counts beside what is there", "[engine]") {
  Case apart;
  apart.job.cluster.local_nodes = 0;
  const Bytes room{static_cast<std::int64_t>(apart.least()) + 1};
  CHECK(check_state_memory(apart.job, apart.plan, room).ok());
  const auto with = [&](std::int32_t node) {
    return check_state_memory(apart.job, apart.plan, room, {{{NodeId{node}, 0}, room}});
  };
  CHECK_FALSE(with(0).ok());
}

TEST_CASE("a node that has said what memory it has is held against that", "[engine]") {
  Case apart;
  apart.job.cluster.local_nodes = 0;
  const Bytes plenty{1'000'000'000};
  const auto with = [&](const DeviceRooms& rooms) {
    return check_state_memory(apart.job, apart.plan, rooms);
  };
  CHECK(with({plenty}).ok());
  const auto refused = with({plenty, {{NodeId{2}, Bytes{1000}}}});
  REQUIRE_FALSE(refused.ok());
  CHECK_THAT(refused.error().message, ContainsSubstring("of node 2 take"));
  DeviceRooms all{Bytes{1000}, {}};
  for (std::int32_t node = 0; node < 4; ++node) all.own[NodeId{node}] = plenty;
  CHECK(with(all).ok());
  // Two devices have twice as much.
  apart.job.cluster.devices_per_node = 2;
  const Bytes half{static_cast<std::int64_t>(apart.least()) + 1};
  CHECK(with({plenty, {{NodeId{0}, half}, {NodeId{3}, half}}}).ok());
}

TEST_CASE("the copy while a checkpoint is saved takes room, where the job saves any", "[engine]") {
  // One device has everything: in fp64 three of the four parts of its state (values, two moments;
  // not gradients) are copied.
  Case without;
  without.job.cluster.local_nodes = 0;
  without.job.cluster.nodes = 1;
  without.job.parallel.layout.pipelines = {{{0, 0, {{"vision", {}}, {"llm", {}}}}}};
  without.plan = make_parallel_plan(prepare(without.job).value()).value();
  Case with = without;
  with.job.checkpoint.every_steps = 5;
  CHECK(checkpoint_copies(without.job, without.plan).empty());
  CHECK(with.least() == Catch::Approx(without.least() * 1.75).margin(2));
  const double copy = without.least() * 0.75;
  CHECK(static_cast<double>(checkpoint_copies(with.job, with.plan).at({NodeId{0}, 0}).count()) ==
        Catch::Approx(copy).margin(2));
  const auto refused = with.check(without.least() * 1.5);
  REQUIRE_FALSE(refused.ok());
  CHECK_THAT(refused.error().message, ContainsSubstring("the copy while a checkpoint is saved"));
  CHECK_THAT(refused.error().fix, ContainsSubstring("save no checkpoints"));
  CHECK_THAT(with.check(1000).error().fix, !ContainsSubstring("save no checkpoints"));
  with.job.checkpoint = {};
  with.job.checkpoint.every_minutes = 1;
  CHECK(with.least() > without.least() * 1.7);
}

TEST_CASE("holders of the same state copy a part of it each", "[engine]") {
  Case tiny;  // Two pipelines on four nodes.
  tiny.job.checkpoint.every_steps = 5;
  Bytes all{}, one{};
  for (const auto& [device, copy] : checkpoint_copies(tiny.job, tiny.plan)) {
    all += copy;
    one = std::max(one, copy);
  }
  CHECK(one.count() < 0.5 * static_cast<double>(all.count()));
}

TEST_CASE("memory of devices that a layout does without is there for the others", "[engine]") {
  Case all;
  all.job.cluster.local_nodes = all.job.cluster.nodes;
  Case one = all;
  one.job.debug.layouts = {{2, {}}};
  one.job.parallel.layout.pipelines = {{{0, 0, {{"vision", {}}, {"llm", {}}}}}};
  one.plan = make_parallel_plan(prepare(one.job).value()).value();
  REQUIRE(one.plan.devices.size() == 1);
  // One copy of the model instead of two, in the memory of the same machine.
  CHECK(one.least() < 0.6 * all.least());
}

TEST_CASE("frozen modules need their parameters alone", "[engine]") {
  Case trained, frozen;
  for (auto& module : frozen.job.modules) module.freeze = module.name != "llm";
  frozen.plan = make_parallel_plan(prepare(frozen.job).value()).value();
  CHECK(frozen.least() < trained.least());
}

}  // namespace
}  // namespace troupe::engine
