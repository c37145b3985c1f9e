// Module groups on different devices of the same nodes, when nodes are lost or join.

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <iterator>
#include <numeric>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "scheduler/recovery/group_layouts.hpp"
#include "scheduler/recovery/layout_choice.hpp"
#include "scheduler/recovery/template_layout.hpp"
#include "tests/scheduler/example_models.hpp"
#include "tests/scheduler/group_replicas.hpp"
#include "tests/scheduler/layout_requests.hpp"
#include "tests/scheduler/preferred_layout.hpp"

namespace troupe::scheduler {
namespace {

using Catch::Approx;
using testing::but;
using testing::draw;
using testing::kEncoders;
using testing::kLlm;
using testing::least_holders;
using testing::Nodes;
using testing::templates;
using testing::vision_audio_llm;

/// Of each group the devices of each replica, counted through the nodes.
using Devices = std::vector<std::vector<std::vector<std::int32_t>>>;

/// Replicas on these devices, cut as templates are.
ParallelPlan plan_on_devices(const Devices& groups, const TemplateSet& set, ClusterShape cluster) {
  const ModelGraph model = vision_audio_llm();
  const std::vector<std::vector<ModuleId>> modules{
      {ModuleId{0}, ModuleId{1}, ModuleId{2}, ModuleId{3}}, {ModuleId{4}}};
  HandLayout layout;
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (const auto& devices : groups[g]) {
      HandReplica& replica = layout.replicas.emplace_back();
      for (const ModuleId module : modules[g]) replica.modules.push_back(model.at(module).name);
      for (const PipelineTemplate& made : set.groups[g].templates)
        if (made.node_count == std::ssize(devices))
          replica.stages =
              stages_of_template(model, layers_of(model, modules[g]), made, devices, {}).value();
      for (HandStage& stage : replica.stages) {
        stage.device = stage.node % cluster.devices_per_node;
        stage.node /= cluster.devices_per_node;
      }
    }
  return place_by_hand(model, layout, cluster, IdleDevices::left_out).value();
}

/// Of each group the devices of its replicas, as above.
std::vector<Nodes> devices_of(const ParallelPlan& plan, ClusterShape cluster) {
  std::vector<Nodes> groups(plan.module_groups.size());
  for (const Replica& replica : plan.replicas) {
    std::set<std::int32_t> devices;
    for (const StageId stage : replica.stages) {
      const DeviceSlot& slot = plan.devices[plan.at(stage).devices.front().index()];
      devices.insert(slot.node.value * cluster.devices_per_node + slot.local_index);
    }
    groups[replica.group.index()].insert(devices);
  }
  return groups;
}

TEST_CASE("templates of groups are cut for single devices of all nodes", "[scheduler][recovery]") {
  const CostModel model = testing::model_of(vision_audio_llm(), {1});
  AutoLayoutRequest request;
  request.model = &model;
  request.samples.assign(4, testing::sample(1, 1));
  request.cluster = {2, 2};
  request.global_batch = 8;
  request.microbatches = 2;
  const auto plan = plan_on_devices({{{0}, {2}}, {{1, 3}}}, templates(2, 9, 6, 2), request.cluster);
  const auto groups = group_templates(request, plan, 2).value();
  REQUIRE(groups.size() == 2);
  for (const TemplateSet& group : groups) {
    CHECK(group.min_nodes == 1);
    REQUIRE(group.templates.size() == 4);
    for (const PipelineTemplate& made : group.templates)
      CHECK(std::ssize(made.stages) == made.node_count);
  }
}

TEST_CASE("who joins nodes where groups have devices of their own works for both groups",
          "[scheduler][recovery]") {
  // A device holds three of the llm's six layers: a replica needs two.
  const ClusterShape cluster{5, 2};
  TemplateSet set = templates(5, 9, 3, 2);
  std::fill_n(set.layer_ms.begin(), kEncoders, 2.0);  // 18 ms, as the llm's.
  const auto plan = plan_on_devices({{{0}, {2}, {4}, {6}}, {{1, 3}, {5, 7}}}, set, cluster);
  const auto all = relayouts({plan, cluster, set, 8, {}, but(5, {})}).value();
  REQUIRE(all.size() == 4);
  const Nodes four{{0}, {2}, {4}, {6}};
  CHECK((devices_of(all[0].plan, cluster) ==
         std::vector<Nodes>{{{0}, {2}, {4}, {6}, {8}}, {{1, 3, 9}, {5, 7}}}));
  CHECK((devices_of(all[1].plan, cluster) ==
         std::vector<Nodes>{{{0}, {2}, {4}, {6}, {8}, {9}}, {{1, 3}, {5, 7}}}));
  CHECK((devices_of(all[2].plan, cluster) == std::vector<Nodes>{four, {{1, 3}, {5, 7}, {8, 9}}}));
  CHECK(all[3].plan == plan);
  // Encoders take 18 ms, stages of two llm layers 6 and of three 9: the slower group counts, and
  // work for one group alone is worth nothing.
  CHECK(microbatches_per_ms(all[0].plan, set) == Approx(5 / 18.0));
  for (const std::size_t other : {1U, 2U, 3U})
    CHECK(microbatches_per_ms(all[other].plan, set) == Approx(4 / 18.0));
}

TEST_CASE("groups stay on devices of their own after a loss too", "[scheduler][recovery]") {
  const ClusterShape cluster{4, 2};
  const Devices before{{{0}, {2}, {4}, {6}}, {{1, 3}, {5, 7}}};
  const TemplateSet small = templates(4, 9, 6, 2), pairs = templates(4, 9, 3, 2);
  const auto after = [&](const TemplateSet& set) {
    const auto plan = plan_on_devices(before, pairs, cluster);
    return devices_of(relayout({plan, cluster, set, 8, {}, but(4, {1})}).value().plan, cluster);
  };
  CHECK((after(small) == std::vector<Nodes>{{{0}, {4}, {6}}, {{1}, {5, 7}}}));
  CHECK((after(pairs) == std::vector<Nodes>{{{0}, {4}, {6}}, {{1, 5, 7}}}));
  // Below its minimum the llm takes a device that has no work, else one of an encoder.
  const ClusterShape three{3, 2};
  const TemplateSet set = templates(3, 9, 3, 2);
  auto plan = plan_on_devices({{{0}, {2}, {4}}, {{1, 3}}}, set, three);
  auto made = relayout({plan, three, set, 8, {}, but(3, {1})}).value();
  CHECK((devices_of(made.plan, three) == std::vector<Nodes>{{{0}, {4}}, {{1, 5}}}));
  plan = plan_on_devices({{{0}, {2}, {4}, {5}}, {{1, 3}}}, set, three);
  made = relayout({plan, three, set, 8, {}, but(3, {1})}).value();
  CHECK((devices_of(made.plan, three) == std::vector<Nodes>{{{0}, {4}}, {{1, 5}}}));
}

TEST_CASE("a device without work gets some though its node has other work",
          "[scheduler][recovery]") {
  // Device 1 loses its part of a replica, and its node has another llm on device 2.
  const ClusterShape cluster{2, 3};
  TemplateSet set = templates(2, 9, 6, 3);
  auto plan = plan_on_devices({{{0}, {3}}, {{1, 4}, {2}, {5}}}, set, cluster);
  auto made = relayout({plan, cluster, set, 8, {}, but(2, {1})}).value();
  CHECK((devices_of(made.plan, cluster) == std::vector<Nodes>{{{0}}, {{1}, {2}}}));
  // Device 5 had no work, and a loss that leaves whole replicas is the time to give it some.
  const ClusterShape three{3, 2};
  set = templates(3, 9, 6, 2);
  plan = plan_on_devices({{{0}, {2}, {4}}, {{1}, {3}}}, set, three);
  made = relayout({plan, three, set, 8, {}, but(3, {0})}).value();
  CHECK((devices_of(made.plan, three) == std::vector<Nodes>{{{2}, {4}}, {{3}, {5}}}));
}

TEST_CASE("devices that no replica of a group can use go to another group, or have no work",
          "[scheduler][recovery]") {
  // A device holds one of the llm's six layers: a replica has six.
  const TemplateSet set = templates(14, 9, 1);
  const ClusterShape cluster{14, 1};
  const auto plan =
      plan_on_devices({{{0}}, {{1, 2, 3, 4, 5, 6}, {7, 8, 9, 10, 11, 12}}}, set, cluster);
  // Of ten nodes the llm uses six, those of the replica that stands, and none of one more.
  const auto layouts = group_layouts({plan, cluster, set, 8, {}, but(14, {1, 2})});
  REQUIRE(layouts.size() == 1);
  const auto made = place_by_hand(vision_audio_llm(), layouts[0], cluster, IdleDevices::left_out);
  CHECK((devices_of(made.value(), cluster) ==
         std::vector<Nodes>{{{0}, {13}}, {{7, 8, 9, 10, 11, 12}}}));
  // Of eleven and one more it uses all, in two replicas, although merging makes one of twelve.
  const auto more = relayout({plan, cluster, set, 8, {}, but(14, {1})}).value();
  CHECK(more.idle.empty());
  const auto sizes = devices_of(more.plan, cluster).back();
  REQUIRE(sizes.size() == 2);
  for (const auto& replica : sizes) CHECK(replica.size() == 6);
}

/// Replicas of groups with these least and most devices, on any of the first `working` devices;
/// none where these are too few.
Devices random_replicas(std::mt19937& random, const TemplateSet& set, std::int32_t working) {
  std::vector<std::int32_t> left(static_cast<std::size_t>(working));
  std::iota(left.begin(), left.end(), 0);
  for (std::size_t i = left.size(); i > 1; --i)
    std::swap(left[i - 1],
              left[static_cast<std::size_t>(draw(random, 0, static_cast<int>(i) - 1))]);
  Devices groups(2);
  while (true) {
    const std::size_t g = groups[0].empty()   ? 0
                          : groups[1].empty() ? 1
                                              : static_cast<std::size_t>(draw(random, 0, 1));
    const std::int32_t least = set.groups[g].min_nodes;
    const std::int32_t most = set.groups[g].templates.back().node_count;
    const auto size = draw(random, least, std::min(most, least + 2));
    if (size > std::ssize(left)) return groups;
    auto& own = groups[g].emplace_back(left.end() - size, left.end());
    std::sort(own.begin(), own.end());
    left.erase(left.end() - size, left.end());
  }
}

/// Whether some number of replicas with these sizes have so many devices together.
bool are_used(std::int64_t devices, const TemplateSet& group) {
  for (std::int64_t count = 1; count <= devices; ++count)
    if (count * group.min_nodes <= devices && devices <= count * group.templates.back().node_count)
      return true;
  return false;
}

TEST_CASE("of groups with devices of their own all work after any losses and joins, if any way is",
          "[scheduler][recovery][property]") {
  int possible = 0;
  for (std::uint32_t seed = 0; seed < 3000; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const ClusterShape cluster{draw(random, 2, 6), draw(random, 1, 3)};
    const std::int32_t held_of_encoders = draw(random, 1, 9), held_of_llm = draw(random, 1, 6);
    const std::int32_t least = (kEncoders - 1) / held_of_encoders + (kLlm - 1) / held_of_llm + 2;
    const std::int32_t working = draw(random, 1, cluster.nodes) * cluster.devices_per_node;
    if (working < least) continue;
    const TemplateSet set =
        templates(cluster.nodes, held_of_encoders, held_of_llm, cluster.devices_per_node);
    const Devices replicas = random_replicas(random, set, working);
    if (replicas[1].empty() || replicas[0].size() + replicas[1].size() == 2) continue;
    std::set<std::int32_t> lost;
    for (std::int32_t n = 0; n < cluster.nodes; ++n)
      if (draw(random, 0, 3) == 0) lost.insert(n);
    const auto there = but(cluster.nodes, lost);
    const auto devices = std::ssize(there) * cluster.devices_per_node;
    std::vector<std::int64_t> left(2);
    for (std::size_t g = 0; g < 2; ++g)
      for (const auto& own : replicas[g])
        for (const std::int32_t device : own)
          if (!lost.contains(device / cluster.devices_per_node)) ++left[g];
    const std::int64_t without_work = devices - left[0] - left[1];
    bool is_possible = false;
    for (std::int64_t to_encoders = 0; to_encoders <= without_work; ++to_encoders)
      is_possible = is_possible || (are_used(left[0] + to_encoders, set.groups[0]) &&
                                    are_used(devices - left[0] - to_encoders, set.groups[1]));
    if (!is_possible) continue;
    ++possible;
    const auto plan = plan_on_devices(replicas, set, cluster);
    const auto all = relayouts({plan, cluster, set, 8, {1, Dtype::fp32}, there});
    REQUIRE(all.ok());
    const ParallelPlan& made = all.value().front().plan;
    const auto groups = groups_by_device(made);
    CHECK(std::ssize(groups) == devices);
    for (const auto& [device, own] : groups) {
      CHECK(own.size() == 1);
      CHECK(there.contains(device.node));
    }
    for (const Replica& replica : made.replicas) {
      const TemplateSet& group = set.groups[replica.group.index()];
      CHECK(std::ssize(replica.stages) >= group.min_nodes);
      CHECK(std::ssize(replica.stages) <= group.templates.back().node_count);
    }
    for (const Relayout& one : all.value())
      CHECK(least_holders(one.plan) >= std::min<std::size_t>(2, there.size()));
  }
  CHECK(possible > 200);
}

}  // namespace
}  // namespace troupe::scheduler
