// Sources of data that only some nodes see: who measures and decodes, and what keeps a job from
// being laid out.

#include "engine/setup/source_nodes.hpp"

#include "engine/execution/plan_slices.hpp"
#include "engine/layout/asked_layout.hpp"
#include "runtime/vocabulary/sample_content.hpp"
#include "tests/engine/names_in.hpp"
#include "tests/engine/planner_fixture.hpp"
#include "tests/torch_catch.hpp"

#include <algorithm>
#include <set>

namespace troupe::engine {
namespace {

/// Positions 0-3 are of a source that nodes 1 and 3 see, the rest of one of all nodes.
job::Job two_sources() {
  auto job = dealt_by_count();
  job.data.shuffle = false;
  job.data.sources.resize(2);
  job.data.sources[0].json = "speech.json";
  job.data.sources[0].nodes = {1, 3};
  return job;
}

struct TwoSources {
  JobSetup setup = prepare(two_sources()).value();
  ParallelPlan plan = make_parallel_plan(setup).value();
  BatchPlanner planner{
      plan, planner_options(setup, data::Epochs(std::vector<SourceCounts>{{0, {4, 12}}}), 1)};
};

TEST_CASE("a sample is measured by a node that sees it", "[engine]") {
  TwoSources two;
  const auto orders = two.planner.measures(0);
  REQUIRE(orders.size() == 4);
  std::set<std::int64_t> measured;
  for (const auto& [node, order] : orders)
    for (const auto& sample : order.samples) {
      CHECK(measured.insert(sample.position).second);
      if (sample.position < 4) CHECK((node == NodeId{1} || node == NodeId{3}));
    }
  CHECK(measured.size() == 6);
  // The two that all see go to those that have nothing yet.
  for (const auto& [node, order] : orders)
    CHECK(order.samples.size() == (node == NodeId{1} || node == NodeId{3} ? 2 : 1));
}

TEST_CASE("what a node does not see is decoded by the one with least to send", "[engine]") {
  TwoSources two;
  const auto orders = measured(two.planner, two.setup, 0);
  const auto planned = [&] {
    const BatchReport report = tiny_report(two.setup, two.plan, 0);
    return two.planner.plan(0, {&report, 1}).value();
  }();
  const auto& samples = planned.iteration.samples;
  // By hand: of positions 0 (with a picture), 1, 2 (with a picture) and 3, node 1 gets the first,
  // node 3 the second and, as text is less than a picture, the third; then node 1 has less.
  const std::vector<std::int32_t> decoders{1, 3, 3, 1};
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK((samples[i].decoder == (i < 4 ? NodeId{decoders[i]} : NodeId{})));
    CHECK((samples[i].seen_by ==
           (i < 4 ? std::vector{NodeId{1}, NodeId{3}} : std::vector<NodeId>{})));
  }
  // Pipeline 0 (pictures on node 0, text on node 1) trains 0-2, pipeline 1 (pictures and text on
  // node 2, the llm's end on node 3) trains 3-5.
  const std::vector<ModuleId> vision{ModuleId{0}};
  CHECK(orders.at(NodeId{0}).samples.empty());
  CHECK(
      (orders.at(NodeId{1}).samples ==
       std::vector<OrderedSample>{{0, vision, true}, {1, {}, true}, {2, {}, true}, {3, {}, true}}));
  CHECK((orders.at(NodeId{2}).samples ==
         std::vector<OrderedSample>{{4, vision, true}, {5, {}, true}}));
  CHECK((
      orders.at(NodeId{3}).samples ==
      std::vector<OrderedSample>{{2, vision, false}, {3, {}, true}, {4, {}, true}, {5, {}, true}}));
  // Two pictures to node 0, and the text of sample 3 to node 2.
  CHECK(planned.iteration.deliveries.size() == 3);
}

TEST_CASE("a sample that decoding finds bad leaves with what was to be sent of it", "[engine]") {
  TwoSources two;
  std::vector<BatchReport> all;
  for (const auto& [node, order] : measured(two.planner, two.setup, 0)) {
    std::vector<data::DecodeOutcome> outcomes;
    for (const auto& wanted : order.samples) {
      if (wanted.position == 0)
        outcomes.emplace_back(
            data::BadSample{"s0", data::BadKind::missing_file, "x.png", "", "gone", ""});
      else
        outcomes.emplace_back(tiny_sample(wanted.position));
    }
    all.push_back(report_on(node, order, outcomes, two.setup, 1));
  }
  const auto planned = two.planner.plan(0, all).value();
  CHECK(planned.dropped.size() == 1);
  REQUIRE(planned.iteration.samples.size() == 5);
  // Who was to decode the others still does.
  CHECK(planned.iteration.samples[0].decoder == NodeId{3});
  CHECK(planned.iteration.samples[1].decoder == NodeId{3});
  CHECK(planned.iteration.samples[2].decoder == NodeId{1});
  CHECK(planned.iteration.deliveries.size() == 2);
}

TEST_CASE("a node has what it receives and sends of a plan's deliveries", "[engine]") {
  TwoSources two;
  const auto orders = measured(two.planner, two.setup, 0);
  const BatchReport report = tiny_report(two.setup, two.plan, 0);
  const auto iteration = two.planner.plan(0, {&report, 1}).value().iteration;
  // The picture of sample 0 goes from node 1 to node 0, that of sample 2 from node 3, and the text
  // of sample 3 from node 1 to node 2.
  const std::vector<std::size_t> own{2, 2, 1, 1};
  const PlanSlices slices(iteration, two.plan);
  for (const NodeId node : two.plan.nodes()) {
    const auto slice = slices.of(node);
    CHECK(slice.deliveries.size() == own[node.index()]);
    for (const auto& list : slice.actions)
      for (const Action& action : list) {
        if (!action.delivery.valid()) continue;
        const Delivery &ours = slice.at(action.delivery), &whole = iteration.at(action.delivery);
        CHECK((ours.destination == whole.destination));
        CHECK(names_in(slice, ours.samples) == names_in(iteration, whole.samples));
        CHECK(content_bytes(ours, SampleUnits(slice.samples, slice.pieces)) == ours.bytes);
      }
  }
}

TEST_CASE("a layout without a node that sees a source is refused", "[engine][errors]") {
  const auto job = two_sources();
  CHECK(check_sources(job, {NodeId{0}, NodeId{3}}).ok());
  // Of no node at all it is not said that it lacks data.
  CHECK(check_sources(job, std::set<NodeId>{}).error().message == "no node is left to train on");
  const auto refused = check_sources(job, {NodeId{0}, NodeId{2}});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::infeasible);
  CHECK(refused.error().where == "data.sources[0].nodes");
  CHECK(refused.error().message ==
        "no node of the layout sees data.sources[0] (speech.json), which is only on nodes 1, 3");
  auto alone = job;
  alone.parallel.layout.pipelines = {{{0, 0, {{"vision", {}}}}, {2, 0, {{"llm", {}}}}}};
  alone.debug.layouts.resize(1);  // Devices may be left out.
  CHECK(choose_layout(prepare(alone).value()).error().where == "data.sources[0].nodes");
}

TEST_CASE("samples of one layout are tried on another one", "[engine]") {
  TwoSources two;
  measured(two.planner, two.setup, 0);
  const BatchReport report = tiny_report(two.setup, two.plan, 0);
  const auto samples = two.planner.plan(0, {&report, 1}).value().iteration.samples;
  auto other = two_sources();
  other.parallel.layout.pipelines = {
      {{0, 0, {{"vision", {}}}}, {2, 0, {{"llm", {}}}}}};  // Nobody who sees all of them.
  other.data.sources[0].nodes.clear();
  other.debug.layouts.resize(1);
  const auto setup = prepare(other).value();
  const auto plan = make_parallel_plan(setup).value();
  CHECK(rehearse(setup, plan, samples).ok());
}

TEST_CASE("a node's options leave out what it does not see", "[engine]") {
  const auto job = two_sources();
  auto options = prepare(job).value().data;
  // The head reads all lists, and may lack the media of some.
  CHECK((options.sources[0].is_here && options.sources[0].may_lack_media));
  CHECK((options.sources[1].is_here && !options.sources[1].may_lack_media));
  see_as(NodeId{3}, job, options);
  CHECK((options.sources[0].is_here && !options.sources[0].may_lack_media));
  see_as(NodeId{2}, job, options);
  CHECK_FALSE(options.sources[0].is_here);
  CHECK(options.sources[1].is_here);
}

}  // namespace
}  // namespace troupe::engine
