#include "scheduler/recovery/next_layout.hpp"

#include <catch2/catch_test_macros.hpp>
#include <memory>

#include "scheduler/recovery/relayout.hpp"
#include "tests/scheduler/example_models.hpp"

namespace troupe::scheduler {
namespace {

using testing::text_llm;

HandStage stage(std::int32_t node, std::int32_t begin, std::int32_t end) {
  return {node, 0, {{"llm", LayerRange{begin, end}}}};
}

/// A pipeline on nodes 0, 1 and 2 and one on 3 and 4; node 1 is lost. Either what survives goes on
/// alone, and nothing moves, or nodes 0 and 2 take over what was on node 1.
struct LostNode {
  ParallelPlan plan =
      place_by_hand(
          text_llm(6),
          {{{stage(0, 0, 2), stage(1, 2, 4), stage(2, 4, 6)}, {stage(3, 0, 3), stage(4, 3, 6)}}},
          {5, 1})
          .value();
  TemplateSet templates = [] {
    TemplateRequest request;
    request.layers.assign(6, {1, 2, Bytes{1}, {}});
    request.node_count = 5;
    request.device_memory = Bytes{6};
    return make_templates(request).value();
  }();
  std::vector<ParameterInfo> parameters = [] {
    std::vector<ParameterInfo> made;
    for (std::int32_t layer = 0; layer < 6; ++layer)
      made.push_back({"p" + std::to_string(layer), {10}, {{ModuleId{0}, layer}}, true});
    return made;
  }();
  StatePlacement left = [this] {
    auto placed = place_state(plan, parameters, Dtype::fp32);
    drop_holders(placed, NodeId{1});
    return placed;
  }();
  const std::set<NodeId> nodes{NodeId{0}, NodeId{2}, NodeId{3}, NodeId{4}};

  Result<NextLayout> next(
      std::function<Status(const std::map<DeviceSlot, Bytes>&)> room,
      double network_bytes_per_ms = 0,
      std::function<Status(const ParallelPlan&)> fits = [](const ParallelPlan&) -> Status {
        return Done{};
      },
      std::int64_t promised = 0) const {
    ChangingJob job{plan, {5, 1}, templates, parameters, 8, {}, 0, {}, left};
    job.tolerance.lost_nodes = promised;
    job.network_bytes_per_ms = network_bytes_per_ms;
    job.quiet_ms = 1e6;
    job.fits = std::move(fits);
    job.fits_beside = std::move(room);
    return next_layout(job, nodes);
  }
};

const Status kFull = Error{Errc::infeasible, "no room", {}, {}};

TEST_CASE("a layout that has room beside the present one is preferred after a loss too",
          "[scheduler][recovery]") {
  const LostNode lost;
  const auto roomy = lost.next([](const auto&) -> Status { return Done{}; }).value();
  CHECK(roomy.plan.pipelines.size() == 2);
  CHECK(roomy.moves.sent_bytes > 0);
  CHECK(roomy.room.ok());
  const auto tight =
      lost.next([](const auto& arriving) { return arriving.empty() ? Status(Done{}) : kFull; })
          .value();
  CHECK(tight.plan.pipelines.size() == 1);
  CHECK(tight.moves.moves.empty());
  CHECK((tight.idle == std::set<NodeId>{NodeId{0}, NodeId{2}}));
  CHECK(tight.room.ok());
}

TEST_CASE("a layout without room is not weighed against one that has some",
          "[scheduler][recovery]") {
  // Copies take no time here, so that the most pipelines would lose the fewest samples.
  const LostNode lost;
  const auto roomy = lost.next([](const auto&) -> Status { return Done{}; }, 1e9).value();
  CHECK(roomy.plan.pipelines.size() == 4);
  const auto tight =
      lost.next([](const auto& arriving) { return arriving.empty() ? Status(Done{}) : kFull; }, 1e9)
          .value();
  CHECK(tight.plan.pipelines.size() == 1);
  CHECK(tight.room.ok());
}

TEST_CASE("why a layout cannot be is said beside the one that is taken", "[scheduler][recovery]") {
  const LostNode lost;
  const auto next = [&](std::size_t most, double network_bytes_per_ms) {
    return lost.next([](const auto&) -> Status { return Done{}; }, network_bytes_per_ms,
                     [most](const ParallelPlan& plan) {
                       return plan.pipelines.size() > most ? kFull : Status(Done{});
                     });
  };
  CHECK(next(9, 0).value().why.empty());
  const auto one = next(1, 0).value();
  CHECK(one.plan.pipelines.size() == 1);
  CHECK(one.why == "2 more layouts cannot be: no room");
  const auto weighed = next(2, 1e9).value();
  CHECK(weighed.plan.pipelines.size() == 2);
  CHECK(weighed.why.starts_with("of 2 layouts the one that is predicted"));
  CHECK(weighed.why.ends_with("; 1 more layout cannot be: no room"));
  const auto none = next(0, 0);
  REQUIRE_FALSE(none.ok());
  CHECK(none.error().message == "no room");
}

TEST_CASE("why copies that are promised cannot be is said beside the layout with fewer",
          "[scheduler][recovery]") {
  const LostNode lost;
  const auto promising = [&](std::int64_t nodes) {
    return lost
        .next([](const auto&) -> Status { return Done{}; }, 0,
              [](const ParallelPlan& made) {
                const bool is_bare = made.pipelines.size() == 1 && made.standbys.empty();
                return is_bare ? Status(Done{}) : kFull;
              },
              nodes)
        .value();
  };
  CHECK(promising(0).why == "2 more layouts cannot be: no room");
  const auto fewer = promising(2);
  CHECK(fewer.plan == promising(0).plan);
  CHECK(fewer.why ==
        "2 more layouts cannot be: no room; copies on 3 nodes, as promised, cannot be: no room");
}

TEST_CASE("where no layout has room the job goes on all the same, and that is said",
          "[scheduler][recovery]") {
  const LostNode lost;
  const auto next = lost.next([](const auto&) { return kFull; }).value();
  CHECK(next.plan.pipelines.size() == 2);
  REQUIRE_FALSE(next.room.ok());
  CHECK(next.room.error().message == "no room");
}

/// A pipeline on node 0 and one on node 1; the others are spare, and the last of these stand by.
struct SpareNodes {
  explicit SpareNodes(std::int32_t spares, std::int32_t standing_by = 1)
      : plan(place_by_hand(text_llm(6), {{{stage(0, 0, 6)}, {stage(1, 0, 6)}}}, {2 + spares, 1},
                           IdleDevices::left_out, {0, Dtype::fp32, standing_by})
                 .value()),
        left(place_state(plan, LostNode().parameters, Dtype::fp32)),
        job{plan, {2 + spares, 1}, lost.templates, lost.parameters, 8, {}, spares, plan.nodes(),
            left} {
    job.fits = [](const ParallelPlan&) -> Status { return Done{}; };
    job.fits_beside = [](const auto&) -> Status { return Done{}; };
  }

  Result<NextLayout> without_node_0(const std::set<NodeId>& nodes) {
    drop_holders(left, NodeId{0});
    return next_layout(job, nodes);
  }

  const LostNode lost{};
  ParallelPlan plan;
  StatePlacement left;
  ChangingJob job;
};

std::set<NodeId> standing_by(const ParallelPlan& plan) {
  std::set<NodeId> nodes;
  for (const Standby& standby : plan.standbys)
    nodes.insert(plan.devices[standby.device.index()].node);
  return nodes;
}

TEST_CASE("a spare node that stood by takes a lost one's place, and no state moves",
          "[scheduler][recovery]") {
  SpareNodes spare(1);
  CHECK((standing_by(spare.plan) == std::set<NodeId>{NodeId{2}}));
  const auto next = spare.without_node_0({NodeId{1}, NodeId{2}}).value();
  CHECK((next.plan.nodes() == std::set<NodeId>{NodeId{1}, NodeId{2}}));
  CHECK(next.plan.standbys.empty());
  CHECK(next.idle.empty());
  CHECK(next.moves.sent_bytes == 0);
}

TEST_CASE("who stood by works before who kept nothing, and nobody waits for copies of spare nodes",
          "[scheduler][recovery]") {
  SpareNodes spare(2);  // Node 2 has just come.
  const auto next = spare.without_node_0({NodeId{1}, NodeId{2}, NodeId{3}}).value();
  CHECK((next.plan.nodes() == std::set<NodeId>{NodeId{1}, NodeId{3}}));
  CHECK((next.idle == std::set<NodeId>{NodeId{2}}));
  CHECK((next.unfilled == std::set<NodeId>{NodeId{2}}));
  CHECK(next.moves.sent_bytes == 0);
}

TEST_CASE("a spare node that stands by for the promise alone lacks the rest",
          "[scheduler][recovery]") {
  // A pipeline over nodes 0 and 1, which no node could run alone; node 2 is spare and has just
  // come, node 3 stands by.
  const LostNode lost;
  HandLayout layout;
  layout.pipelines.push_back({stage(0, 0, 3), stage(1, 3, 6)});
  const ParallelPlan plan =
      place_by_hand(text_llm(6), layout, {4, 1}, IdleDevices::left_out, {0, Dtype::fp32, 1})
          .value();
  TemplateRequest request;
  request.layers.assign(6, {1, 2, Bytes{1}, {}});
  request.node_count = 4;
  request.device_memory = Bytes{3};
  const TemplateSet templates = make_templates(request).value();
  StatePlacement left = place_state(plan, lost.parameters, Dtype::fp32);
  drop_holders(left, NodeId{0});
  // On the heap: GCC 12 takes its tolerance for never set otherwise.
  const std::unique_ptr<ChangingJob> job(
      new ChangingJob{plan, {4, 1}, templates, lost.parameters, 8, {}, 2, plan.nodes(), left});
  job->tolerance.lost_nodes = 1;
  job->fits = [](const ParallelPlan&) -> Status { return Done{}; };
  job->fits_beside = [](const auto&) -> Status { return Done{}; };
  const auto next = next_layout(*job, {NodeId{1}, NodeId{2}, NodeId{3}}).value();
  CHECK((standing_by(next.plan) == std::set<NodeId>{NodeId{2}, NodeId{3}}));
  CHECK(next.idle.empty());
  CHECK((next.unfilled == std::set<NodeId>{NodeId{2}}));
}

TEST_CASE("a spare node that comes stands by for all, or for nothing where that does not fit",
          "[scheduler][recovery]") {
  SpareNodes spare(1, 0);
  const std::set<NodeId> all{NodeId{0}, NodeId{1}, NodeId{2}};
  const auto next = next_layout(spare.job, all).value();
  CHECK((standing_by(next.plan) == std::set<NodeId>{NodeId{2}}));
  CHECK(next.plan.standbys.size() == state_units(next.plan.model).size());
  CHECK(next.plan.stages == spare.plan.stages);
  CHECK(next.idle.empty());
  CHECK(next.unfilled.empty());
  spare.job.fits = [](const ParallelPlan& plan) -> Status {
    return plan.standbys.empty() ? Status(Done{}) : kFull;
  };
  const auto bare = next_layout(spare.job, all).value();
  CHECK(bare.plan == spare.plan);
  CHECK((bare.idle == std::set<NodeId>{NodeId{2}}));
}

}  // namespace
}  // namespace troupe::scheduler
