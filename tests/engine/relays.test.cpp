// Rows that pass through a device of neither end (`scheduler.boundary = "gather-scatter"`), on real
// executors.

#include "tests/torch_catch.hpp"

#include <ATen/ops/equal.h>

#include <catch2/generators/catch_generators.hpp>
#include <map>

#include "engine/execution/plan_slices.hpp"
#include "engine/layout/choose_layout.hpp"
#include "scheduler/check/check_plan.hpp"
#include "tests/engine/tiny_cluster.hpp"

namespace troupe::engine {
namespace {

/// Three vision replicas and an llm, each on a node of its own.
job::Job gathering_job(const std::string& boundary) {
  auto job = tiny_job();
  job.parallel.layout = {};
  for (int node = 0; node < 3; ++node)
    job.parallel.layout.replicas.push_back({{"vision"}, {{node, 0, {{"vision", {}}}}}});
  job.parallel.layout.replicas.push_back({{"llm"}, {{3, 0, {{"llm", {}}}}}});
  job.train.microbatches = 3;
  job.scheduler.boundary = boundary;
  return job;
}

/// Parameters after two steps, and how often each device has handed something on.
struct Trained {
  std::vector<at::Tensor> parameters;
  std::map<std::size_t, std::map<ActionKind, int>> relays;
};

Trained trained(const std::string& boundary, bool in_slices = false) {
  Cluster cluster(gathering_job(boundary));
  Trained result;
  for (std::int64_t batch = 0; batch < 2; ++batch) {
    cluster.train(batch, in_slices);
    for (std::size_t device = 0; device < 4; ++device) {
      const auto report = cluster.executor(device).take_report();
      CHECK(report.peak_received <= cluster.executor(device).receive_bound());
      for (const auto& event : report.events)
        if (event.action.kind == ActionKind::relay ||
            event.action.kind == ActionKind::relay_gradient) {
          ++result.relays[device][event.action.kind];
          CHECK(event.bytes > 0);
          CHECK(!event.action.stage.valid());
        }
    }
  }
  result.parameters = cluster.parameters();
  return result;
}

TEST_CASE("rows that pass through a device are the same bits, and so are gradients", "[engine]") {
  // Of the plan each device has what its node gets, as it does in a job.
  const auto direct = trained("direct"), gathered = trained("gather-scatter", true);
  CHECK(direct.relays.empty());
  // Three pictures a step, one to each encoder: those of the second and third pass the first.
  REQUIRE(gathered.relays.size() == 1);
  const auto& first = gathered.relays.at(0);
  CHECK(first.at(ActionKind::relay) == 4);
  CHECK(first.at(ActionKind::relay_gradient) == 4);
  REQUIRE(direct.parameters.size() == gathered.parameters.size());
  for (std::size_t i = 0; i < direct.parameters.size(); ++i)
    CHECK(at::equal(direct.parameters[i], gathered.parameters[i]));
}

TEST_CASE("a node's slice has the messages that pass it", "[engine]") {
  const auto setup = prepare(gathering_job("gather-scatter")).value();
  const auto plan = make_parallel_plan(setup).value();
  SampleStore store;
  const auto planned = plan_tiny_batch(setup, plan, store).value();
  const PlanSlices slices(planned.iteration, plan);
  const auto slice = slices.of(NodeId{0});
  std::size_t passing = 0;
  for (const Message& message : planned.iteration.messages) passing += message.relay.valid();
  CHECK(passing == 2);
  for (const Action& action : slice.actions[0])
    if (action.message.valid()) CHECK(slice.find(action.message) != nullptr);
  CHECK(slice.messages.size() == planned.iteration.messages.size());
  CHECK((slice.boundaries == planned.iteration.boundaries));
  // Encoders 1 and 2 have their own alone.
  CHECK(slices.of(NodeId{1}).messages.size() == 1);
}

}  // namespace
}  // namespace troupe::engine
