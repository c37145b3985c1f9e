#include "scheduler/recovery/relayout.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "tests/scheduler/example_models.hpp"
#include "tests/scheduler/preferred_layout.hpp"

namespace troupe::scheduler {
namespace {

using testing::draw;
using testing::text_llm;
using testing::vision_audio_llm;

/// Templates of a model whose layers take 1 ms; a device holds `held` of them.
TemplateSet templates(std::size_t layers, std::int64_t nodes, std::int64_t held) {
  TemplateRequest request;
  request.layers.assign(layers, {1, 2, Bytes{1}, {}});
  request.node_count = nodes;
  request.device_memory = Bytes{held};
  return make_templates(request).value();
}

std::set<NodeId> but(std::int32_t nodes, const std::set<std::int32_t>& lost) {
  std::set<NodeId> there;
  for (std::int32_t node = 0; node < nodes; ++node)
    if (!lost.contains(node)) there.insert(NodeId{node});
  return there;
}

std::vector<HandStage> llm_on(const std::vector<std::int32_t>& nodes, std::int32_t layers) {
  std::vector<HandStage> stages;
  const auto count = static_cast<std::int32_t>(nodes.size());
  for (std::int32_t s = 0; s < count; ++s)
    stages.push_back({nodes[static_cast<std::size_t>(s)],
                      0,
                      {{"llm", LayerRange{layers * s / count, layers * (s + 1) / count}}}});
  return stages;
}

std::vector<std::set<NodeId>> nodes_of_pipelines(const ParallelPlan& plan) {
  std::vector<std::set<NodeId>> nodes(plan.pipelines.size());
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    nodes[plan.pipeline_of(StageId{s}).index()].insert(plan.node_of(StageId{s}));
  return nodes;
}

/// The stages of the pipeline on exactly these nodes: layers and device of each.
std::vector<std::pair<DeviceSlot, std::vector<LayerRun>>> stages_on(const ParallelPlan& plan,
                                                                    const std::set<NodeId>& nodes) {
  std::vector<std::pair<DeviceSlot, std::vector<LayerRun>>> found;
  const auto all = nodes_of_pipelines(plan);
  for (std::size_t p = 0; p < all.size(); ++p)
    if (all[p] == nodes)
      for (const StageId stage : plan.stages_of(PipelineId{p}))
        found.emplace_back(plan.devices[plan.at(stage).devices.front().index()],
                           plan.at(stage).runs);
  return found;
}

TEST_CASE("a pipeline of one node goes with it, the others stay as they are", "[scheduler]") {
  const auto plan =
      place_by_hand(text_llm(6), {{llm_on({0}, 6), llm_on({1, 2}, 6)}}, {3, 1}).value();
  const auto made = relayout({plan, {3, 1}, templates(6, 3, 6), 8, {}, but(3, {0})}).value();
  CHECK(made.plan.pipelines.size() == 1);
  CHECK(made.idle.empty());
  const std::set<NodeId> left{NodeId{1}, NodeId{2}};
  CHECK(stages_on(made.plan, left) == stages_on(plan, left));
}

TEST_CASE("all layouts that work are there, the preferred one first", "[scheduler]") {
  const auto plan =
      place_by_hand(text_llm(6), {{llm_on({0, 1, 2}, 6), llm_on({3, 4}, 6)}}, {5, 1}).value();
  const TemplateSet set = templates(6, 5, 6);
  const RelayoutRequest request{plan, {5, 1}, set, 8, Tolerance{}, but(5, {1})};
  const auto all = relayouts(request).value();
  CHECK(all.front().plan == relayout(request).value().plan);
  CHECK(nodes_of_pipelines(all.front().plan).size() == 2);
  CHECK(all.front().idle.empty());
  // What survives alone, and what templates for all nodes would be best.
  const std::set<NodeId> waiting{NodeId{0}, NodeId{2}};
  CHECK(std::any_of(all.begin(), all.end(),
                    [&](const Relayout& made) { return made.idle == waiting; }));
  for (std::size_t a = 0; a < all.size(); ++a)
    for (std::size_t b = 0; b < a; ++b) CHECK_FALSE(all[a].plan == all[b].plan);
  // Where nothing has to move there is no other choice.
  const auto kept = relayouts({plan, {5, 1}, set, 8, {}, but(5, {0, 1, 2})}).value();
  REQUIRE(kept.size() == 1);
  CHECK(stages_on(kept[0].plan, {NodeId{3}, NodeId{4}}) == stages_on(plan, {NodeId{3}, NodeId{4}}));
}

TEST_CASE("who looks further finds pipelines of all lengths where all could stay as it is",
          "[scheduler]") {
  const auto plan =
      place_by_hand(text_llm(6), {{llm_on({0, 1}, 6), llm_on({2, 3}, 6)}}, {4, 1}).value();
  const TemplateSet set = templates(6, 4, 6);
  RelayoutRequest request{plan, {4, 1}, set, 8, Tolerance{}, but(4, {})};
  REQUIRE(relayouts(request).value().size() == 1);  // The present one.
  request.looks_further = true;
  const auto all = relayouts(request).value();
  std::set<std::size_t> counts;
  for (const Relayout& made : all) {
    counts.insert(made.plan.pipelines.size());
    CHECK(made.idle.empty());
  }
  CHECK((counts == std::set<std::size_t>{1, 2, 4}));
  CHECK(
      std::any_of(all.begin(), all.end(), [&](const Relayout& made) { return made.plan == plan; }));
  for (std::size_t a = 0; a < all.size(); ++a)
    for (std::size_t b = 0; b < a; ++b) CHECK_FALSE(all[a].plan == all[b].plan);
}

TEST_CASE("nodes are dealt evenly to pipelines by who looks further", "[scheduler]") {
  // Of two nodes at least: 7 / 2 = 3 pipelines, of three 2, of four and six 1.
  const auto plan =
      place_by_hand(text_llm(8), {{llm_on({0, 1, 2, 3, 4, 5, 6}, 8)}}, {7, 1}).value();
  const TemplateSet set = templates(8, 7, 4);
  RelayoutRequest request{plan, {7, 1}, set, 8, Tolerance{}, but(7, {})};
  request.looks_further = true;
  const auto all = relayouts(request).value();
  std::set<std::vector<std::size_t>> sizes;
  for (const Relayout& made : all) {
    std::vector<std::size_t> own;
    for (const auto& nodes : nodes_of_pipelines(made.plan)) own.push_back(nodes.size());
    std::sort(own.begin(), own.end());
    sizes.insert(own);
  }
  for (const auto& expected : std::vector<std::vector<std::size_t>>{{2, 2, 3}, {3, 4}, {7}})
    CHECK(sizes.contains(expected));
}

TEST_CASE("what is left of a pipeline takes the template of its size", "[scheduler]") {
  // The pipeline that stays is cut as no template would be.
  const std::vector<HandStage> uneven{{2, 0, {{"llm", LayerRange{0, 1}}}},
                                      {3, 0, {{"llm", LayerRange{1, 6}}}}};
  const auto plan = place_by_hand(text_llm(6), {{llm_on({0, 1}, 6), uneven}}, {4, 1}).value();
  const auto made = relayout({plan, {4, 1}, templates(6, 4, 6), 8, {}, but(4, {1})}).value();
  REQUIRE(made.plan.pipelines.size() == 2);
  CHECK(made.idle.empty());
  const std::set<NodeId> whole{NodeId{2}, NodeId{3}};
  CHECK(stages_on(made.plan, whole) == stages_on(plan, whole));
  const auto alone = stages_on(made.plan, {NodeId{0}});
  REQUIRE(alone.size() == 1);
  CHECK(alone[0].second == std::vector<LayerRun>{{ModuleId{0}, {0, 6}}});
}

TEST_CASE("a pipeline that is too small borrows, and merges where nobody can give", "[scheduler]") {
  // A node holds four of six layers, so that a pipeline needs two.
  const auto borrow =
      place_by_hand(text_llm(6), {{llm_on({0, 1}, 6), llm_on({2, 3, 4}, 6)}}, {5, 1}).value();
  auto made = relayout({borrow, {5, 1}, templates(6, 5, 4), 8, {}, but(5, {1})}).value();
  CHECK(nodes_of_pipelines(made.plan) ==
        std::vector<std::set<NodeId>>{{NodeId{0}, NodeId{4}}, {NodeId{2}, NodeId{3}}});
  const auto merge =
      place_by_hand(text_llm(6), {{llm_on({0, 1}, 6), llm_on({2, 3}, 6)}}, {4, 1}).value();
  made = relayout({merge, {4, 1}, templates(6, 4, 4), 8, {}, but(4, {1})}).value();
  CHECK(nodes_of_pipelines(made.plan) ==
        std::vector<std::set<NodeId>>{{NodeId{0}, NodeId{2}, NodeId{3}}});
  CHECK(made.plan.stages.size() == 3);
}

TEST_CASE("losing an encoder's node changes the encoder group alone", "[scheduler]") {
  const HandRun vision{"vision", {}}, audio{"audio", {}}, llm{"llm", {}};
  const HandLayout layout{{},
                          {{{"vision", "audio"}, {{0, 0, {vision, audio}}}},
                           {{"vision", "audio"}, {{1, 0, {vision, audio}}}},
                           {{"vision", "audio"}, {{2, 0, {vision, audio}}}},
                           {{"llm"}, {{3, 0, {llm}}}},
                           {{"llm"}, {{4, 0, {llm}}}}}};
  const auto plan = place_by_hand(vision_audio_llm(), layout, {5, 1}).value();
  const TemplateSet made_templates = templates(15, 5, 15);
  const auto made = relayout({plan, {5, 1}, made_templates, 8, {}, but(5, {1})}).value();
  CHECK(made.plan.pipelines.size() == 1);
  REQUIRE(made.plan.replicas.size() == 4);
  CHECK(made.plan.nodes() == but(5, {1}));
  std::map<NodeId, std::vector<LayerRun>> before, after;
  for (const Stage& stage : plan.stages)
    before[plan.devices[stage.devices[0].index()].node] = stage.runs;
  for (const Stage& stage : made.plan.stages)
    after[made.plan.devices[stage.devices[0].index()].node] = stage.runs;
  before.erase(NodeId{1});
  CHECK(after == before);

  // The last replica of a group: what is left of the nodes becomes whole pipelines.
  const auto last = relayout({plan, {5, 1}, made_templates, 8, {}, but(5, {3, 4})}).value();
  CHECK(last.plan.module_groups.size() == 2);
  CHECK(last.plan.nodes() == but(5, {3, 4}));
}

TEST_CASE("pipelines that share nodes go one by one where nobody idles", "[scheduler]") {
  HandLayout layout;
  for (std::int32_t device = 0; device < 2; ++device) {
    layout.pipelines.push_back({{0, device, {{"llm", LayerRange{0, 4}}}}});
    layout.pipelines.push_back({{1, device, {{"llm", LayerRange{0, 4}}}}});
  }
  const auto plan = place_by_hand(text_llm(4), layout, {2, 2}).value();
  const auto made = relayout({plan, {2, 2}, templates(4, 2, 4), 8, {}, but(2, {1})}).value();
  CHECK(made.plan.pipelines.size() == 2);
  CHECK(made.plan.nodes() == but(2, {1}));
}

TEST_CASE("without templates pipelines that are whole go on, and the rest idles", "[scheduler]") {
  const auto plan =
      place_by_hand(text_llm(6), {{llm_on({0, 1}, 6), llm_on({2, 3}, 6)}}, {4, 1}).value();
  const auto made = relayout({plan, {4, 1}, TemplateSet{}, 8, {}, but(4, {1})}).value();
  CHECK(made.plan.nodes() == std::set<NodeId>{NodeId{2}, NodeId{3}});
  CHECK(made.idle == std::set<NodeId>{NodeId{0}});
  CHECK_FALSE(relayout({plan, {4, 1}, TemplateSet{}, 8, {}, but(4, {1, 2})}).ok());
}

TEST_CASE("a node that joins is put to work", "[scheduler]") {
  const auto plan =
      place_by_hand(text_llm(6), {{llm_on({0, 1}, 6)}}, {4, 1}, IdleDevices::left_out).value();
  const auto made = relayout({plan, {4, 1}, templates(6, 4, 4), 8, {}, but(4, {})}).value();
  CHECK(made.idle.empty());
  CHECK(made.plan.pipelines.size() == 2);
  const std::set<NodeId> stayed{NodeId{0}, NodeId{1}};
  CHECK(stages_on(made.plan, stayed) == stages_on(plan, stayed));
}

TEST_CASE("random losses and joins: every node works, f + 1 replicas where they can be",
          "[scheduler]") {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const std::int32_t nodes = draw(random, 4, 14), layers = draw(random, 14, 20);
    const std::int64_t minimum = draw(random, 1, 3), tolerance = draw(random, 0, 1);
    const TemplateSet set =
        templates(static_cast<std::size_t>(layers), nodes, (layers + minimum - 1) / minimum);
    REQUIRE(set.min_nodes == minimum);
    std::vector<std::int32_t> order(static_cast<std::size_t>(nodes));
    for (std::int32_t i = 0; i < nodes; ++i) order[static_cast<std::size_t>(i)] = i;
    HandLayout layout;
    const auto pipelines = std::max<std::int64_t>(1, nodes / (minimum + 1));
    for (std::int64_t p = 0; p < pipelines; ++p)
      layout.pipelines.push_back(llm_on(
          {order.begin() + nodes * p / pipelines, order.begin() + nodes * (p + 1) / pipelines},
          layers));
    auto plan = place_by_hand(text_llm(layers), layout, {nodes, 1}).value();
    std::set<NodeId> there = but(nodes, {});
    for (int event = 0; event < 6; ++event) {
      const NodeId node{draw(random, 0, nodes - 1)};
      if (!there.erase(node)) there.insert(node);
      const auto made = relayout({plan, {nodes, 1}, set, 64, {tolerance, Dtype::fp32}, there});
      if (static_cast<std::int64_t>(there.size()) < minimum) {
        CHECK_FALSE(made.ok());
        break;
      }
      REQUIRE(made.ok());
      CAPTURE(seed, event, nodes, layers, minimum, tolerance);
      CHECK(made.value().idle.empty());
      CHECK(made.value().plan.nodes() == there);
      const auto most = static_cast<std::int64_t>(there.size()) / minimum;
      CHECK(std::ssize(made.value().plan.pipelines) >= std::min(most, tolerance + 1));
      // Everything is on f + 1 nodes, wherever there are as many.
      const auto copies =
          std::min<std::size_t>(static_cast<std::size_t>(tolerance) + 1, there.size());
      for (const auto& holders : unit_holders(made.value().plan)) {
        std::set<NodeId> holding;
        for (const DeviceId device : holders)
          holding.insert(made.value().plan.devices[device.index()].node);
        CHECK(holding.size() >= copies);
      }
      plan = made.value().plan;
    }
  }
}

TEST_CASE("what is kept on standby stays where it is and takes over", "[scheduler]") {
  const Tolerance one{1, Dtype::fp32};
  const auto plan =
      place_by_hand(text_llm(6), {{llm_on({0, 1, 2}, 6)}}, {3, 1}, IdleDevices::refused, one)
          .value();
  REQUIRE(plan.standbys.size() == 6);
  const auto made = relayout({plan, {3, 1}, templates(6, 3, 4), 8, one, but(3, {1})}).value();
  CHECK(made.idle.empty());
  for (const auto& holders : unit_holders(made.plan)) CHECK(holders.size() == 2);
  // A node alone holds no pipeline.
  CHECK_FALSE(relayout({made.plan, {3, 1}, templates(6, 3, 4), 8, one, but(3, {0, 1})}).ok());
  const auto last = relayout({made.plan, {3, 1}, templates(6, 3, 6), 8, one, but(3, {0, 1})});
  CHECK(last.value().plan.standbys.empty());
}

TEST_CASE("who stands by for something that one node trains goes on doing so", "[scheduler]") {
  const Tolerance one{1, Dtype::fp32};
  const auto plan = place_by_hand(text_llm(10), {{llm_on({0, 1, 2, 3, 4}, 10)}}, {5, 1},
                                  IdleDevices::refused, one)
                        .value();
  const TemplateSet set = templates(10, 5, 3);  // Four nodes hold a pipeline.
  std::size_t stayed = 0;
  for (std::int32_t lost = 0; lost < 5; ++lost) {
    const auto made = relayout({plan, {5, 1}, set, 8, one, but(5, {lost})}).value().plan;
    for (const Standby& before : plan.standbys) {
      const DeviceSlot& slot = plan.devices[before.device.index()];
      const auto unit = static_cast<std::size_t>(before.layer.layer);
      bool trains = false;
      for (const Stage& stage : made.stages)
        for (const LayerRun& run : stage.runs)
          trains = trains ||
                   (made.devices[stage.devices.front().index()] == slot &&
                    run.layers.begin <= before.layer.layer && before.layer.layer < run.layers.end);
      if (slot.node == NodeId{lost} || trains) continue;
      const auto holders = unit_holders(made)[unit];
      CAPTURE(lost, unit, slot.node.value);
      CHECK(std::any_of(holders.begin(), holders.end(),
                        [&](DeviceId id) { return made.devices[id.index()] == slot; }));
      ++stayed;
    }
  }
  CHECK(stayed > 10);
}

TEST_CASE("a layout by hand has its standby holders on nodes that are there", "[scheduler]") {
  const auto plan =
      place_by_hand(text_llm(6), {{llm_on({0, 1, 2, 3}, 6)}}, {5, 1}, IdleDevices::left_out)
          .value();
  const Tolerance one{1, Dtype::fp32};
  const TemplateSet none;
  // Node 4 is lost; by itself place_by_hand would have it stand by.
  const HandLayout cut{{llm_on({3, 0}, 6)}};
  const auto made = relayout_by_hand({plan, {5, 1}, none, 8, one, but(5, {4})}, cut).value();
  CHECK(made.plan.pipelines.size() == 1);
  CHECK_FALSE(made.plan.nodes().contains(NodeId{4}));
  CHECK_FALSE(made.plan.standbys.empty());
  for (const auto& holders : unit_holders(made.plan)) {
    std::set<NodeId> nodes;
    for (const DeviceId holder : holders) nodes.insert(made.plan.devices[holder.index()].node);
    CHECK(nodes.size() >= 2);
  }
  // What stands by where it is of use stays there, so that asking again changes nothing.
  CHECK((relayout_by_hand({made.plan, {5, 1}, none, 8, one, but(5, {4})}, cut).value().plan ==
         made.plan));
  const auto alone = relayout_by_hand({plan, {5, 1}, none, 8, {}, but(5, {4})}, cut).value();
  CHECK((alone.idle == std::set<NodeId>{NodeId{1}, NodeId{2}}));
  CHECK_FALSE(relayout_by_hand({plan, {5, 1}, none, 8, {}, but(5, {4})}, {{llm_on({3}, 5)}}).ok());
}

}  // namespace
}  // namespace troupe::scheduler
