#include "scheduler/recovery/group_layouts.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <random>
#include <string>

#include "scheduler/recovery/layout_choice.hpp"
#include "scheduler/recovery/next_layout.hpp"
#include "scheduler/recovery/template_layout.hpp"
#include "tests/scheduler/example_models.hpp"
#include "tests/scheduler/group_replicas.hpp"
#include "tests/scheduler/preferred_layout.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using testing::but;
using testing::draw;
using testing::kLlm;
using testing::least_holders;
using testing::Nodes;
using testing::templates;
using testing::vision_audio_llm;

/// Encoders on one node each, llm replicas on these nodes, cut as no template would be.
ParallelPlan plan_on(const std::vector<std::int32_t>& encoders,
                     const std::vector<std::vector<std::int32_t>>& llms, std::int32_t nodes) {
  HandLayout layout;
  for (const std::int32_t node : encoders)
    layout.replicas.push_back({{"vision", "audio"}, {{node, 0, {{"vision", {}}, {"audio", {}}}}}});
  for (const auto& own : llms) {
    HandReplica& replica = layout.replicas.emplace_back(HandReplica{{"llm"}, {}});
    const auto count = static_cast<std::int32_t>(own.size());
    const auto cut = [count](std::int32_t s) {
      return kLlm * s / count - (s > 0 && s < count ? 1 : 0);
    };
    for (std::int32_t s = 0; s < count; ++s)
      replica.stages.push_back(
          {own[static_cast<std::size_t>(s)], 0, {{"llm", LayerRange{cut(s), cut(s + 1)}}}});
  }
  return place_by_hand(vision_audio_llm(), layout, {nodes, 1}, IdleDevices::left_out).value();
}

/// An encoder on each of the first `working` nodes, and llm replicas of `of_llm` of them each.
ParallelPlan shared_plan(std::int32_t working, std::int32_t of_llm, std::int32_t nodes) {
  std::vector<std::int32_t> encoders;
  std::vector<std::vector<std::int32_t>> llms;
  for (std::int32_t node = 0; node < working; ++node) {
    encoders.push_back(node);
    if (node % of_llm == 0) llms.emplace_back();
    llms.back().push_back(node);
  }
  return plan_on(encoders, llms, nodes);
}

/// Of each group the nodes of its replicas.
std::vector<std::set<std::set<std::int32_t>>> replicas_of(const ParallelPlan& plan) {
  std::vector<std::set<std::set<std::int32_t>>> groups(plan.module_groups.size());
  for (const Replica& replica : plan.replicas) {
    std::set<std::int32_t> nodes;
    for (const StageId stage : replica.stages) nodes.insert(plan.node_of(stage).value);
    groups[replica.group.index()].insert(nodes);
  }
  return groups;
}

TEST_CASE("what is left of a group's replica is cut anew", "[scheduler][recovery]") {
  const auto plan = plan_on({0, 1, 2}, {{3, 4}, {5, 6}}, 7);
  const auto made = relayout({plan, {7, 1}, templates(7, 9, 6), 8, {}, but(7, {4})}).value();
  CHECK((replicas_of(made.plan) == std::vector<Nodes>{{{0}, {1}, {2}}, {{3}, {5, 6}}}));
  CHECK(made.idle.empty());
  // Who lost nobody keeps its stages.
  for (const Stage& stage : made.plan.stages) {
    const NodeId node = made.plan.devices[stage.devices.front().index()].node;
    if (node == NodeId{3}) CHECK((stage.runs == std::vector<LayerRun>{{ModuleId{4}, {0, kLlm}}}));
    if (node == NodeId{5}) CHECK((stage.runs == std::vector<LayerRun>{{ModuleId{4}, {0, 2}}}));
  }
}

TEST_CASE("nodes are borrowed and merged within a group first", "[scheduler][recovery]") {
  // A node holds three of the llm's six layers: a replica needs two.
  const TemplateSet set = templates(8, 9, 3);
  const auto borrow = plan_on({0, 1, 2}, {{3, 4}, {5, 6, 7}}, 8);
  auto made = relayout({borrow, {8, 1}, set, 8, {}, but(8, {4})}).value();
  CHECK((replicas_of(made.plan) == std::vector<Nodes>{{{0}, {1}, {2}}, {{3, 7}, {5, 6}}}));
  const auto merge = plan_on({0, 1, 2}, {{3, 4}, {5, 6}}, 7);
  made = relayout({merge, {7, 1}, set, 8, {}, but(7, {4})}).value();
  CHECK((replicas_of(made.plan) == std::vector<Nodes>{{{0}, {1}, {2}}, {{3, 5, 6}}}));
}

TEST_CASE("a group below its minimum takes a node of another one", "[scheduler][recovery]") {
  const auto plan = plan_on({0, 1, 2}, {{3, 4}}, 5);
  const auto made = relayout({plan, {5, 1}, templates(5, 9, 3), 8, {}, but(5, {4})}).value();
  CHECK((replicas_of(made.plan) == std::vector<Nodes>{{{0}, {1}}, {{2, 3}}}));
  // Its last replica too.
  const auto gone = relayout({plan, {5, 1}, templates(5, 9, 6), 8, {}, but(5, {3, 4})}).value();
  CHECK((replicas_of(gone.plan) == std::vector<Nodes>{{{0}, {1}}, {{2}}}));
  CHECK_FALSE(relayout({plan, {5, 1}, templates(5, 9, 3), 8, {}, but(5, {0, 1, 3, 4})}).ok());
}

TEST_CASE("who joins works for either group", "[scheduler][recovery]") {
  const auto plan = plan_on({0, 1}, {{2}, {3}}, 5);
  const auto all = relayouts({plan, {5, 1}, templates(5, 9, 6), 8, {}, but(5, {})}).value();
  REQUIRE(all.size() == 3);
  CHECK((replicas_of(all[0].plan) == std::vector<Nodes>{{{0}, {1}, {4}}, {{2}, {3}}}));
  CHECK((replicas_of(all[1].plan) == std::vector<Nodes>{{{0}, {1}}, {{2}, {3}, {4}}}));
  CHECK(all[2].plan == plan);
  CHECK(all[2].idle == std::set<NodeId>{NodeId{4}});
}

TEST_CASE("groups without templates are left as they are", "[scheduler][recovery]") {
  const auto plan = plan_on({0, 1, 2}, {{3, 4}, {5, 6}}, 7);
  TemplateSet set = templates(7, 9, 6);
  set.groups[1].templates.clear();
  const auto nodes = but(7, {4});
  CHECK(group_layouts({plan, {7, 1}, set, 8, {}, nodes}).empty());
  const auto kept = relayout({plan, {7, 1}, set, 8, {}, nodes}).value();
  CHECK(kept.idle == std::set<NodeId>{NodeId{3}});
}

TEST_CASE("replicas of a group that share a node change together", "[scheduler][recovery]") {
  const auto plan = plan_on({0, 1, 2}, {{3, 4}, {4, 5}}, 7);
  const auto replicas = [](const HandLayout& layout) {
    const auto made = place_by_hand(vision_audio_llm(), layout, {7, 1}, IdleDevices::left_out);
    return replicas_of(made.value());
  };
  const TemplateSet set = templates(7, 9, 6);
  const auto lost = group_layouts({plan, {7, 1}, set, 8, {}, but(7, {3, 6})});
  REQUIRE(lost.size() == 1);
  CHECK((replicas(lost[0]) == std::vector<Nodes>{{{0}, {1}, {2}}, {{4, 5}}}));
  const auto joined = group_layouts({plan, {7, 1}, set, 8, {}, but(7, {})});
  REQUIRE(joined.size() == 2);
  CHECK((replicas(joined[0]) == std::vector<Nodes>{{{0}, {1}, {2}, {6}}, {{3, 4}, {4, 5}}}));
  CHECK((replicas(joined[1]) == std::vector<Nodes>{{{0}, {1}, {2}}, {{3, 4}, {4, 5}, {6}}}));
}

TEST_CASE("who joins nodes with replicas on each device works on all its devices",
          "[scheduler][recovery]") {
  HandLayout layout;
  for (std::int32_t d = 0; d < 4; ++d) {
    layout.replicas.push_back(
        {{"vision", "audio"}, {{d / 2, d % 2, {{"vision", {}}, {"audio", {}}}}}});
    layout.replicas.push_back({{"llm"}, {{d / 2, d % 2, {{"llm", LayerRange{0, kLlm}}}}}});
  }
  const auto plan =
      place_by_hand(vision_audio_llm(), layout, {3, 2}, IdleDevices::left_out).value();
  const auto made = relayout({plan, {3, 2}, templates(3, 9, 6, 2), 8, {}, but(3, {})}).value();
  CHECK(made.idle.empty());
  CHECK(made.plan.devices.size() == 6);
  CHECK(made.plan.replicas.size() == plan.replicas.size() + 4);
  for (const auto& [device, groups] : groups_by_device(made.plan)) CHECK(groups.size() == 2);
  CHECK((replicas_of(made.plan) == std::vector<Nodes>{{{0}, {1}, {2}}, {{0}, {1}, {2}}}));
}

TEST_CASE("groups that share nodes lose whole replicas where all others go on with their work",
          "[scheduler][recovery]") {
  const auto single = shared_plan(4, 1, 4), pairs = shared_plan(4, 2, 4);
  const TemplateSet set = templates(4, 9, 6);
  auto all = relayouts({single, {4, 1}, set, 8, {}, but(4, {2})}).value();
  REQUIRE(all.size() == 1);
  CHECK((replicas_of(all[0].plan) == std::vector<Nodes>{{{0}, {1}, {3}}, {{0}, {1}, {3}}}));
  all = relayouts({pairs, {4, 1}, set, 8, {}, but(4, {2, 3})}).value();
  REQUIRE(all.size() == 1);
  CHECK((replicas_of(all[0].plan) == std::vector<Nodes>{{{0}, {1}}, {{0, 1}}}));
  // One replica is too few where a node may be lost.
  const auto tolerant = relayout({pairs, {4, 1}, set, 8, {1, Dtype::fp32}, but(4, {2, 3})}).value();
  CHECK((replicas_of(tolerant.plan) == std::vector<Nodes>{{{0}, {1}}, {{0}, {1}}}));
}

TEST_CASE("what is left of an llm's nodes that encode too works for the llm again",
          "[scheduler][recovery]") {
  const auto plan = shared_plan(4, 2, 4);
  const TemplateSet set = templates(4, 9, 6);
  const auto all = relayouts({plan, {4, 1}, set, 8, {}, but(4, {3})}).value();
  REQUIRE(all.size() == 3);
  const Nodes encoders{{0}, {1}, {2}};
  CHECK((replicas_of(all[0].plan) == std::vector<Nodes>{encoders, {{0, 1}, {2}}}));
  CHECK((replicas_of(all[1].plan) == std::vector<Nodes>{encoders, {{0, 1, 2}}}));
  CHECK((replicas_of(all[2].plan) == std::vector<Nodes>{encoders, {{0, 1}}}));
  // Layers take 3 ms, of four microbatches: 27 / 3 ms for encoders, and for llms on one, two (cut
  // 2 to 4) and three nodes 18, (18 + 3 x 12) / 4 and (18 + 3 x 6) / 4 ms.
  const double one = 1 / 18.0, two = 1 / 13.5, three = 1 / 9.0;
  CHECK(1 / microbatches_per_ms(all[0].plan, set) == Approx(9 + 1 / (one + two)));
  CHECK(1 / microbatches_per_ms(all[1].plan, set) == Approx(9 + 1 / three));
  CHECK(1 / microbatches_per_ms(all[2].plan, set) == Approx(9 + 1 / two));
  // Who lost nobody keeps its stages.
  for (const Stage& stage : all[0].plan.stages) {
    if (!all[0].plan.is_llm(stage.replica)) continue;
    const NodeId node = all[0].plan.devices[stage.devices.front().index()].node;
    const LayerRange layers = stage.runs.front().layers;
    CHECK(layers.begin == (node == NodeId{1} ? 2 : 0));
    CHECK(layers.end == (node == NodeId{0} ? 2 : kLlm));
  }
}

TEST_CASE("groups that share nodes borrow and merge each by itself", "[scheduler][recovery]") {
  // A node holds three of the llm's six layers: a replica needs two.
  const auto borrow = plan_on({0, 1, 2, 3, 4}, {{0, 1}, {2, 3, 4}}, 5);
  auto made = relayout({borrow, {5, 1}, templates(5, 9, 3), 8, {}, but(5, {1})}).value();
  CHECK((replicas_of(made.plan) == std::vector<Nodes>{{{0}, {2}, {3}, {4}}, {{0, 4}, {2, 3}}}));
  const auto merge = shared_plan(4, 2, 4);
  made = relayout({merge, {4, 1}, templates(4, 9, 3), 8, {}, but(4, {1, 3})}).value();
  CHECK((replicas_of(made.plan) == std::vector<Nodes>{{{0}, {2}}, {{0, 2}}}));
  const auto all = relayouts({merge, {4, 1}, templates(4, 9, 6), 8, {}, but(4, {1, 3})}).value();
  REQUIRE(all.size() == 2);
  CHECK((replicas_of(all[0].plan) == std::vector<Nodes>{{{0}, {2}}, {{0}, {2}}}));
  CHECK((replicas_of(all[1].plan) == std::vector<Nodes>{{{0}, {2}}, {{0, 2}}}));
}

TEST_CASE("who joins nodes that groups share works for all groups", "[scheduler][recovery]") {
  const Nodes five{{0}, {1}, {2}, {3}, {4}};
  const auto single = shared_plan(4, 1, 5), pairs = shared_plan(4, 2, 5);
  auto made = relayout({single, {5, 1}, templates(5, 9, 6), 8, {}, but(5, {})}).value();
  CHECK((replicas_of(made.plan) == std::vector<Nodes>{five, five}));
  const auto all = relayouts({pairs, {5, 1}, templates(5, 9, 6), 8, {}, but(5, {})}).value();
  REQUIRE(all.size() == 6);
  const Nodes four{{0}, {1}, {2}, {3}};
  CHECK((replicas_of(all[0].plan) == std::vector<Nodes>{five, {{0, 1}, {2, 3}, {4}}}));
  CHECK((replicas_of(all[1].plan) == std::vector<Nodes>{five, {{0, 1}, {2, 3}}}));
  CHECK((replicas_of(all[2].plan) == std::vector<Nodes>{four, {{0, 1}, {2, 3}, {4}}}));
  CHECK((replicas_of(all[3].plan) == std::vector<Nodes>{five, {{0, 1, 4}, {2, 3}}}));
  CHECK((replicas_of(all[4].plan) == std::vector<Nodes>{four, {{0, 1, 4}, {2, 3}}}));
  CHECK(all[5].plan == pairs);
  CHECK(all[5].idle == std::set<NodeId>{NodeId{4}});
  // An llm that needs two nodes goes to two that join.
  const auto more = shared_plan(4, 2, 6);
  made = relayout({more, {6, 1}, templates(6, 9, 3), 8, {}, but(6, {})}).value();
  CHECK((replicas_of(made.plan) ==
         std::vector<Nodes>{{{0}, {1}, {2}, {3}, {4}, {5}}, {{0, 1}, {2, 3}, {4, 5}}}));
}

TEST_CASE("a group without a node of its own works on all, beside the other one",
          "[scheduler][recovery]") {
  const auto plan = plan_on({0, 1, 2, 3}, {{2, 3}}, 4);
  const auto all = relayouts({plan, {4, 1}, templates(4, 9, 6), 8, {}, but(4, {2, 3})}).value();
  REQUIRE(all.size() == 2);
  CHECK((replicas_of(all[0].plan) == std::vector<Nodes>{{{0}, {1}}, {{0}, {1}}}));
  CHECK((replicas_of(all[1].plan) == std::vector<Nodes>{{{0}, {1}}, {{0, 1}}}));
}

TEST_CASE("an llm without room beside an encoder is cut over more nodes", "[scheduler][recovery]") {
  const auto plan = shared_plan(4, 2, 4);
  const TemplateSet set = templates(4, 9, 6);
  std::vector<ParameterInfo> parameters;
  for (const LayerId& layer : layers_of(plan.model))
    parameters.push_back({"p" + std::to_string(parameters.size()), {10}, {layer}, true});
  auto left = place_state(plan, parameters, Dtype::fp32);
  drop_holders(left, NodeId{3});
  ChangingJob job{plan, {4, 1}, set, parameters, 8, {}, 0, {}, left};
  job.network_bytes_per_ms = 1e9;
  job.quiet_ms = 1e6;
  std::int32_t room = kLlm;  // For layers of the llm.
  job.fits = [&room](const ParallelPlan& made) -> Status {
    for (const Stage& stage : made.stages) {
      const LayerRange layers = stage.runs.front().layers;
      if (made.is_llm(stage.replica) && layers.end - layers.begin > room)
        return Error{Errc::infeasible, "no room", {}, {}};
    }
    return Done{};
  };
  job.fits_beside = [](const auto&) -> Status { return Done{}; };
  const auto llms = [&job] {
    return replicas_of(next_layout(job, but(4, {3})).value().plan).back();
  };
  CHECK((llms() == Nodes{{0, 1}, {2}}));
  room = kLlm - 1;
  CHECK((llms() == Nodes{{0, 1, 2}}));
}

TEST_CASE("of groups that share nodes all nodes work after any losses and joins",
          "[scheduler][recovery][property]") {
  int changed = 0;
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const std::int32_t least = draw(random, 1, 3);  // Nodes of an llm replica.
    const std::int32_t of_llm = draw(random, least, 3);
    const std::int32_t working = of_llm * draw(random, 2, 4);
    const std::int32_t nodes = working + draw(random, 0, 2);
    const auto plan = shared_plan(working, of_llm, nodes);
    std::set<std::int32_t> lost;
    for (std::int32_t n = 0; n < nodes; ++n)
      if (draw(random, 0, 3) == 0) lost.insert(n);
    const auto there = but(nodes, lost);
    const TemplateSet set = templates(nodes, 9, (kLlm + least - 1) / least);
    const auto all = relayouts({plan, {nodes, 1}, set, 8, {1, Dtype::fp32}, there});
    REQUIRE(all.ok() == (std::ssize(there) >= least));
    if (!all.ok()) continue;
    const auto groups = groups_by_device(all.value().front().plan);
    CHECK(groups.size() == there.size());
    for (const auto& [device, own] : groups) CHECK(own.size() == 2);
    for (const Relayout& made : all.value())
      CHECK(least_holders(made.plan) >= std::min<std::size_t>(2, there.size()));
    if (all.value().size() > 1) ++changed;
  }
  CHECK(changed > 100);
}

TEST_CASE("any losses and joins leave each group a replica where nodes suffice",
          "[scheduler][recovery][property]") {
  int changed = 0;
  for (std::uint32_t seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const int least = draw(random, 1, 3);  // Nodes of an llm replica.
    std::vector<std::int32_t> encoders;
    std::int32_t node = 0;
    for (int count = draw(random, 1, 4); count > 0; --count) encoders.push_back(node++);
    std::vector<std::vector<std::int32_t>> llms;
    for (int count = draw(random, encoders.size() == 1 ? 2 : 1, 3); count > 0; --count) {
      auto& own = llms.emplace_back();
      for (int more = draw(random, least, 3); more > 0; --more) own.push_back(node++);
    }
    if (encoders.size() == llms.size()) continue;  // Pipelines of one replica each.
    const std::int32_t nodes = node + draw(random, 0, 2);
    const auto plan = plan_on(encoders, llms, nodes);
    std::set<std::int32_t> lost;
    for (std::int32_t n = 0; n < nodes; ++n)
      if (draw(random, 0, 3) == 0) lost.insert(n);
    const auto there = but(nodes, lost);
    const TemplateSet set = templates(nodes, 9, (kLlm + least - 1) / least);
    const auto layouts = group_layouts({plan, {nodes, 1}, set, 8, {}, there});
    const bool suffices = static_cast<int>(there.size()) >= 1 + set.groups[1].min_nodes;
    CHECK(layouts.empty() == !suffices);
    for (const HandLayout& layout : layouts) {
      const auto made =
          place_by_hand(vision_audio_llm(), layout, {nodes, 1}, IdleDevices::left_out);
      REQUIRE(made.ok());
      CHECK(made.value().nodes() == there);  // Nobody idles.
      ++changed;
    }
  }
  CHECK(changed > 200);
}

}  // namespace
}  // namespace troupe::scheduler
