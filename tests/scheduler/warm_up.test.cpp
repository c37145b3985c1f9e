#include "scheduler/recovery/warm_up.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <random>
#include <set>

#include "scheduler/state/standby_holders.hpp"
#include "tests/scheduler/random_plans.hpp"

namespace troupe::scheduler {
namespace {

using testing::draw;
using testing::text_llm;

std::vector<std::set<DeviceSlot>> slots_of_units(const ParallelPlan& plan) {
  std::vector<std::set<DeviceSlot>> slots;
  for (const auto& holders : unit_holders(plan)) {
    auto& own = slots.emplace_back();
    for (const DeviceId device : holders) own.insert(plan.devices[device.index()]);
  }
  return slots;
}

ParallelPlan llm_on(const std::vector<std::int32_t>& nodes, std::int32_t layers) {
  HandLayout layout{{{}}};
  const auto count = static_cast<std::int32_t>(nodes.size());
  for (std::int32_t s = 0; s < count; ++s)
    layout.pipelines[0].push_back(
        {nodes[static_cast<std::size_t>(s)],
         0,
         {{"llm", LayerRange{layers * s / count, layers * (s + 1) / count}}}});
  const auto most = *std::max_element(nodes.begin(), nodes.end());
  return place_by_hand(text_llm(layers), layout, {most + 1, 1}, IdleDevices::left_out).value();
}

TEST_CASE("a device takes over what it will have, so much at a time", "[scheduler][recovery]") {
  const auto base = llm_on({0}, 4), wanted = llm_on({0, 1}, 4);
  // Layers of 10, 11, 12 and 13 elements: the last two come, 12 bytes (value and moments) each.
  const std::int64_t third = 12 * base.model.modules[0].layers[2].parameter_elements;
  const std::int64_t fourth = 12 * base.model.modules[0].layers[3].parameter_elements;
  const LayerId layers[]{{ModuleId{0}, 2}, {ModuleId{0}, 3}};
  const auto all = next_warm_up({base, base, wanted, Dtype::fp32, Bytes{third + fourth}});
  CHECK((all.plan.devices == std::vector<DeviceSlot>{{NodeId{0}, 0}, {NodeId{1}, 0}}));
  CHECK((all.arriving ==
         std::vector<Standby>{{DeviceId{1}, layers[0], {}}, {DeviceId{1}, layers[1], {}}}));
  CHECK(all.layouts_left == 0);
  CHECK(all.plan.stages == base.stages);
  CHECK((all.plan.groups[2].holders == std::vector<DeviceId>{DeviceId{0}, DeviceId{1}}));
  CHECK(all.plan.groups[2].standbys == 1);
  const auto first = next_warm_up({base, base, wanted, Dtype::fp32, Bytes{third + fourth - 1}});
  CHECK((first.arriving == std::vector<Standby>{{DeviceId{1}, layers[0], {}}}));
  CHECK(first.layouts_left == 1);
  const auto second =
      next_warm_up({base, first.plan, wanted, Dtype::fp32, Bytes{third + fourth - 1}});
  CHECK((second.arriving == std::vector<Standby>{{DeviceId{1}, layers[1], {}}}));
  CHECK(second.plan == all.plan);
  CHECK(second.layouts_left == 0);
  CHECK(next_warm_up({base, second.plan, wanted, Dtype::fp32, Bytes{1}}).arriving.empty());
}

TEST_CASE("what warmed up for a layout that is not wanted any more is let go",
          "[scheduler][recovery]") {
  const auto base = llm_on({0}, 4), wanted = llm_on({0, 1}, 4), other = llm_on({0, 2}, 4);
  const auto warm = next_warm_up({base, base, wanted, Dtype::fp32, Bytes{1 << 20}});
  const auto next = next_warm_up({base, warm.plan, other, Dtype::fp32, Bytes{1 << 20}});
  CHECK((next.plan.nodes() == std::set<NodeId>{NodeId{0}, NodeId{2}}));
}

TEST_CASE("any layout can warm up beside any other one", "[scheduler][recovery][property]") {
  for (std::uint32_t seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    ParallelPlan base = testing::random_plan(random);
    if (draw(random, 0, 1) == 1) base = testing::with_standbys(std::move(base), random);
    const ModelGraph& model = base.model;
    auto drawn = testing::draw_plan(model, random);
    while (!drawn.ok()) drawn = testing::draw_plan(model, random);
    const ParallelPlan& wanted = drawn.value();
    const Dtype dtype = draw(random, 0, 1) == 0 ? Dtype::fp32 : Dtype::bf16;
    const Bytes at_a_time{draw(random, 1, 4000)};
    const auto goal = slots_of_units(wanted), begun = slots_of_units(base);
    const auto units = state_units(model);
    ParallelPlan present = base;
    std::int64_t left = -1;
    for (;;) {
      const auto next = next_warm_up({base, present, wanted, dtype, at_a_time});
      CHECK(next.plan.stages == base.stages);
      CHECK(next.plan.replicas == base.replicas);
      CHECK(std::equal(base.devices.begin(), base.devices.end(), next.plan.devices.begin()));
      for (std::size_t g = 0; g < base.groups.size(); ++g) {
        // What is added up, and in which order, stays as it is.
        CHECK(next.plan.groups[g].users() == base.groups[g].users());
        CHECK(std::equal(base.groups[g].holders.begin(),
                         base.groups[g].holders.begin() + base.groups[g].users(),
                         next.plan.groups[g].holders.begin()));
      }
      if (left >= 0) CHECK(next.layouts_left == std::max<std::int64_t>(left - 1, 0));
      if (next.arriving.empty()) break;
      left = next.layouts_left;
      std::map<DeviceId, std::pair<std::int64_t, std::int64_t>> came;  // Units and bytes.
      for (const Standby& standby : next.arriving) {
        const StateUnit& unit = unit_of(units, standby);
        auto& [count, bytes] = came[standby.device];
        ++count;
        bytes += unit.trained * (dtype == Dtype::fp32 ? 12 : 14) +
                 unit.constant * (dtype == Dtype::fp32 ? 4 : 2);
      }
      for (const auto& [device, sum] : came)
        CHECK((sum.first == 1 || sum.second <= at_a_time.count()));
      present = next.plan;
    }
    CHECK(left <= 0);
    const auto reached = slots_of_units(present);
    for (std::size_t u = 0; u < units.size(); ++u) {
      CHECK(std::includes(reached[u].begin(), reached[u].end(), goal[u].begin(), goal[u].end()));
      for (const DeviceSlot& slot : reached[u])
        CHECK((goal[u].contains(slot) || begun[u].contains(slot)));
    }
  }
}

}  // namespace
}  // namespace troupe::scheduler
