#include "tests/torch_catch.hpp"

#include "engine/execution/plan_slices.hpp"

#include <ATen/ops/equal.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/engine/names_in.hpp"
#include "tests/engine/planner_fixture.hpp"
#include "tests/engine/tiny_cluster.hpp"

namespace troupe::engine {
namespace {

const ModuleId kVision{0};

/// Samples s0 to s2 are of pipeline 0: pictures on node 0, the llm on node 1. s3 to s5 are of
/// pipeline 1: pictures and half of the llm on node 2, the rest on node 3. Even ones have a
/// picture.
struct Planned : PlannerFixture {
  IterationPlan iteration = plan_tiny(planner, setup, plan, 0).value().iteration;

  bool is_on(StageId stage, NodeId node) const { return plan.node_of(stage) == node; }
};

TEST_CASE("a slice keeps a node's own actions and messages, by their names", "[engine]") {
  Planned planned;
  const IterationPlan& whole = planned.iteration;
  const PlanSlices slices(whole, planned.plan);
  for (const NodeId node : planned.plan.nodes()) {
    const auto slice = slices.of(node);
    for (std::size_t device = 0; device < 4; ++device)
      CHECK((slice.actions[device] ==
             (device == node.index() ? whole.actions[device] : std::vector<Action>{})));
    std::size_t own = 0;
    for (std::size_t m = 0; m < whole.messages.size(); ++m) {
      const Message& message = whole.messages[m];
      if (!planned.is_on(message.source.stage, node) &&
          !planned.is_on(message.destination.stage, node))
        continue;
      const Message* ours = slice.find(MessageId{m});
      REQUIRE(ours != nullptr);
      CHECK((slice.id_of(own) == MessageId{m}));
      CHECK((ours->source == message.source));
      CHECK((ours->destination == message.destination));
      CHECK(ours->rows == message.rows);
      CHECK(names_in(slice, ours->samples) == names_in(whole, message.samples));
      ++own;
    }
    CHECK(slice.messages.size() == own);
    CHECK(own > 0);
    CHECK(own < whole.messages.size());
  }
}

/// A plan whose pictures go through their encoders as pieces: units 6, of s0, and 7, of s4.
IterationPlan in_pieces(IterationPlan iteration, const ParallelPlan& plan) {
  iteration.pieces = {{0, kVision, 0, 1}, {4, kVision, 0, 1}};
  const auto cut = [](std::vector<std::int32_t>& units) {
    std::replace(units.begin(), units.end(), 0, 6);
    std::replace(units.begin(), units.end(), 4, 7);
  };
  for (std::size_t r = 0; r < plan.replicas.size(); ++r)
    for (Microbatch& microbatch : iteration.microbatches[r])
      for (Part& part : microbatch.parts)
        if (!plan.is_llm(ReplicaId{r})) cut(part.samples);
  for (Message& message : iteration.messages)
    if (message.boundary) cut(message.samples);
  return iteration;
}

TEST_CASE("a slice has the samples and pieces that it names, in their order", "[engine]") {
  Planned planned;
  const IterationPlan whole = in_pieces(planned.iteration, planned.plan);
  const PlanSlices slices(whole, planned.plan);
  // Of hidden rows of the llm, which node 3 gets, pieces make none.
  const std::vector<std::vector<std::int32_t>> samples{{0, 1, 2}, {0, 1, 2}, {3, 4, 5}, {3, 4, 5}};
  const std::vector<std::vector<SamplePiece>> pieces{
      {{0, kVision, 0, 1}}, {{0, kVision, 0, 1}}, {{1, kVision, 0, 1}}, {}};
  for (const NodeId node : planned.plan.nodes()) {
    const auto slice = slices.of(node);
    REQUIRE(slice.samples.size() == 3);
    for (std::size_t i = 0; i < 3; ++i)
      CHECK((slice.samples[i] == whole.sample(samples[node.index()][i])));
    CHECK((slice.pieces == pieces[node.index()]));
    REQUIRE(slice.microbatches.size() == whole.microbatches.size());
    for (std::size_t r = 0; r < slice.microbatches.size(); ++r) {
      const auto& stages = planned.plan.replicas[r].stages;
      const bool is_here = std::any_of(stages.begin(), stages.end(),
                                       [&](StageId stage) { return planned.is_on(stage, node); });
      REQUIRE(slice.microbatches[r].size() == (is_here ? whole.microbatches[r].size() : 0));
      for (std::size_t m = 0; m < slice.microbatches[r].size(); ++m) {
        const auto &ours = slice.microbatches[r][m].parts, &parts = whole.microbatches[r][m].parts;
        REQUIRE(ours.size() == parts.size());
        for (std::size_t q = 0; q < parts.size(); ++q)
          CHECK(names_in(slice, ours[q].samples) == names_in(whole, parts[q].samples));
      }
    }
    for (std::size_t m = 0; m < slice.messages.size(); ++m)
      CHECK(names_in(slice, slice.messages[m].samples) ==
            names_in(whole, whole.at(slice.id_of(m)).samples));
  }
}

TEST_CASE("what is counted of the whole batch is the same in all slices", "[engine]") {
  Planned planned;
  const PlanSlices slices(planned.iteration, planned.plan);
  CHECK(planned.iteration.segments.empty());
  for (const NodeId node : planned.plan.nodes()) {
    const auto slice = slices.of(node);
    // Three pictures, for vision and its projector, and six samples of text.
    CHECK(slice.segments == std::vector<std::int64_t>{3, 3, 6});
    CHECK(slice.trained_tokens == planned.iteration.trained_tokens);
    CHECK(slice.max_in_flight == planned.iteration.max_in_flight);
  }
}

/// What node 0 gets where so many copies of the tiny job's two pipelines train, each on nodes and
/// with samples of its own.
IterationPlan slice_among(std::int32_t copies) {
  auto job = dealt_by_count();
  auto& pipelines = job.parallel.layout.pipelines;
  const auto two = pipelines;
  for (std::int32_t copy = 1; copy < copies; ++copy)
    for (auto stages : two) {
      for (auto& stage : stages) stage.node += 4 * copy;
      pipelines.push_back(std::move(stages));
    }
  job.cluster.nodes = job.cluster.local_nodes = 4 * copies;
  job.train.global_batch_size = 6 * copies;
  const auto setup = prepare(job).value();
  const auto plan = make_parallel_plan(setup).value();
  SampleStore store;
  const auto planned = plan_tiny_batch(setup, plan, store).value();
  return PlanSlices(planned.iteration, plan).of(NodeId{0});
}

TEST_CASE("a slice is as large however many other nodes there are", "[engine]") {
  const auto alone = slice_among(1), among_many = slice_among(4);
  CHECK(alone.samples.size() == 3);
  CHECK((among_many.samples == alone.samples));
  CHECK(among_many.messages.size() == alone.messages.size());
  for (const IterationPlan* slice : {&alone, &among_many}) {
    std::size_t filled = 0;
    for (const MicrobatchList& list : slice->microbatches) filled += list.empty() ? 0 : 1;
    CHECK(filled == 1);  // Of its encoder.
  }
}

TEST_CASE("devices that have slices compute the bits of the whole plan", "[engine]") {
  Cluster whole, sliced;
  for (std::int64_t batch = 0; batch < 2; ++batch) {
    whole.train(batch);
    sliced.train(batch, /*in_slices=*/true);
  }
  const auto expected = whole.parameters(), parameters = sliced.parameters();
  REQUIRE(parameters.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(at::equal(parameters[i], expected[i]));
}

}  // namespace
}  // namespace troupe::engine
