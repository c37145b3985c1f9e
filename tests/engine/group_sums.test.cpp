#include "tests/torch_catch.hpp"

#include "engine/execution/group_sums.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "runtime/state/gradient_norm.hpp"
#include "transport/inproc/hub.hpp"
#include "transport/registry.hpp"

namespace troupe::engine {
namespace {

/// Devices that hold one group, on nodes of their own unless it is said where; the last one, or
/// another, uses it twice. Behind them stand those on standby.
struct Holders {
  ParallelPlan plan;
  std::map<std::int32_t, at::Tensor> kept;                              ///< By device on standby.
  std::map<std::int32_t, std::map<std::size_t, at::Tensor>> gradients;  ///< By device and use.
  std::unique_ptr<Device> host = make_device({});
  std::vector<std::unique_ptr<transport::Transport>> transports;
  std::vector<std::unique_ptr<TensorMailbox>> mailboxes;
  std::vector<std::unique_ptr<GroupSums>> sums;
  std::vector<GroupNorm> norms;

  /// `nodes`: of each device, from 0 without a gap; then the sum is a tree. `seed`: of gradients.
  Holders(std::int32_t users, std::int64_t elements, std::int32_t standbys = 0,
          std::vector<std::int32_t> nodes = {}, std::uint64_t seed = 7, std::int32_t twice = -1) {
    const std::int32_t count = users + standbys;
    const bool tree = !nodes.empty();
    for (std::int32_t d = 0; !tree && d < count; ++d) nodes.push_back(d);
    const std::int32_t node_count = *std::max_element(nodes.begin(), nodes.end()) + 1;
    ParameterGroup group{"layer", false, elements, {}, {}};
    auto random = at::make_generator<at::CPUGeneratorImpl>(seed);
    for (std::int32_t d = 0; d < count; ++d) {
      plan.devices.push_back({NodeId{nodes[static_cast<std::size_t>(d)]}, 0});
      group.holders.push_back(DeviceId{d});
      if (d >= users) {
        kept[d] = at::full({elements}, 1e30, at::kFloat);  // Of a step that was discarded.
        continue;
      }
      for (int uses = d == (twice < 0 ? users - 1 : twice) ? 2 : 1; uses > 0; --uses) {
        gradients[d][group.uses.size()] = at::randn({elements}, random, at::kFloat);
        group.uses.push_back({StageId{plan.stages.size()}, {ModuleId{0}, 0}});
        plan.stages.push_back({ReplicaId{d}, {}, {DeviceId{d}}});
      }
    }
    group.standbys = standbys;
    if (tree) group.order = SumOrder::tree_by_node;
    plan.groups = {group};
    transport::TransportOptions options;
    options.hub = std::make_shared<transport::InprocHub>();
    for (options.self = 0; options.self < node_count; ++options.self)
      transports.push_back(transport::create_transport("inproc", options).value());
    for (std::int32_t node = 0; node < node_count; ++node)
      for (std::int32_t peer = 0; peer < node_count; ++peer)
        REQUIRE(transport(node).connect(peer, transport(peer).address()).ok());
    for (std::int32_t d = 0; d < count; ++d) {
      mailboxes.push_back(std::make_unique<TensorMailbox>(
          transport(nodes[static_cast<std::size_t>(d)]), *host, 1, [] {}));
      mailboxes.back()->begin(1, Bytes{1 << 30});
      sums.push_back(std::make_unique<GroupSums>(
          plan, DeviceId{d}, [this, d](GroupId, std::optional<std::size_t> use) -> at::Tensor& {
            return use ? gradients.at(d).at(*use) : kept.at(d);
          }));
    }
  }

  transport::Transport& transport(std::int32_t node) {
    return *transports[static_cast<std::size_t>(node)];
  }

  GroupSums& sums_of(std::int32_t device) { return *sums[static_cast<std::size_t>(device)]; }
  TensorMailbox& mailbox(std::int32_t device) {
    return *mailboxes[static_cast<std::size_t>(device)];
  }

  /// Runs the group's actions, devices in this order.
  void run(const std::vector<std::int32_t>& order) {
    const GroupSum sum = plan_sum(plan, GroupId{0});
    const auto role = [&](std::int32_t d) { return role_of(sum, DeviceId{d}); };
    const auto take = [&](std::int32_t d, ActionKind kind) {
      Action action;
      action.kind = kind;
      action.group = GroupId{0};
      const auto arrivals = sums_of(d).arrivals_of(action, at::kFloat);
      REQUIRE(mailbox(d).post(arrivals).value());
      REQUIRE(mailbox(d).arrived(arrivals).value());
      std::vector<at::Tensor> taken;
      for (const Arrival& arrival : arrivals) taken.push_back(*mailbox(d).take(arrival.key));
      return taken;
    };
    const auto act = [&](std::int32_t d, ActionKind kind) -> std::vector<Parcel> {
      const GroupId id{0};
      switch (kind) {
        case ActionKind::reduce_send: return sums_of(d).send(id);
        case ActionKind::reduce_partial: return sums_of(d).reduce_partial(id, take(d, kind));
        case ActionKind::reduce: return sums_of(d).reduce(id, take(d, kind));
        case ActionKind::reduce_relay: return sums_of(d).relay(id, take(d, kind));
        default: sums_of(d).receive(id, take(d, kind)); return {};
      }
    };
    for (const ActionKind kind : kSumActions)
      for (const auto d : order) {
        if (!role(d).acts(kind)) continue;
        for (const Parcel& parcel : act(d, kind)) mailbox(d).send(parcel);
        if (kind == ActionKind::reduce) norms.push_back(norm_of(sums_of(d).measure(GroupId{0})));
      }
  }

  /// Node after node, in each device after device, each device's uses first.
  at::Tensor expected() const {
    std::vector<at::Tensor> by_node;
    std::vector<NodeId> seen;
    for (const auto& [device, uses] : gradients) {
      at::Tensor own;
      for (const auto& [use, tensor] : uses) own = own.defined() ? own.add(tensor) : tensor.clone();
      const NodeId node = plan.devices[static_cast<std::size_t>(device)].node;
      const auto found = std::find(seen.begin(), seen.end(), node);
      if (found == seen.end()) {
        seen.push_back(node);
        by_node.push_back(own);
      } else {
        by_node[static_cast<std::size_t>(found - seen.begin())].add_(own);
      }
    }
    at::Tensor sum = by_node.front();
    for (std::size_t n = 1; n < by_node.size(); ++n) sum.add_(by_node[n]);
    return sum;
  }
};

TEST_CASE("all holders get the sum in the order of holders, whoever comes first", "[engine]") {
  for (const std::int64_t elements : {std::int64_t{10}, std::int64_t{9'001}, std::int64_t{40'000}})
    for (const std::int32_t count : {1, 2, 3, 5}) {
      CAPTURE(elements, count);
      std::vector<std::int32_t> order;
      for (std::int32_t d = 0; d < count; ++d) order.push_back(d);
      for (const bool backwards : {false, true}) {
        if (backwards) std::reverse(order.begin(), order.end());
        Holders holders(count, elements);
        const at::Tensor expected = holders.expected();
        holders.run(order);
        for (auto& [device, uses] : holders.gradients)
          CHECK(at::equal(uses.begin()->second, expected));
        // Every element is in one norm.
        double squared = 0;
        std::set<std::int32_t> chunks;
        for (const GroupNorm& norm : holders.norms) {
          CHECK(norm.finite);
          squared += norm.squared;
          CHECK(chunks.insert(norm.chunk).second);
        }
        CHECK(squared == Catch::Approx(state::squared_norm(expected)).epsilon(1e-12));
      }
    }
}

TEST_CASE("standby holders get the sum, and change neither its bits nor its norms", "[engine]") {
  for (const std::int64_t elements : {std::int64_t{10}, std::int64_t{40'000}})
    for (const std::int32_t users : {1, 2, 3})
      for (const std::int32_t standbys : {1, 2}) {
        CAPTURE(elements, users, standbys);
        std::vector<std::int32_t> order;
        for (std::int32_t d = users + standbys; d > 0; --d) order.push_back(d - 1);
        Holders alone(users, elements), holders(users, elements, standbys);
        const at::Tensor expected = alone.expected();
        alone.run({order.begin() + standbys, order.end()});
        holders.run(order);
        for (auto& [device, uses] : holders.gradients)
          CHECK(at::equal(uses.begin()->second, expected));
        REQUIRE(std::ssize(holders.kept) == standbys);
        for (auto& [device, sum] : holders.kept) CHECK(at::equal(sum, expected));
        REQUIRE(holders.norms.size() == alone.norms.size());
        for (std::size_t n = 0; n < alone.norms.size(); ++n) {
          CHECK(holders.norms[n].squared == alone.norms[n].squared);
          CHECK(holders.norms[n].chunk == alone.norms[n].chunk);
        }
      }
}

TEST_CASE("in a tree all holders get the sum node after node, to the bit, wherever they stand",
          "[engine][property]") {
  int differ = 0;
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto draw = [&](int from, int to) {
      return std::uniform_int_distribution(from, to)(random);
    };
    const int users = draw(1, 7), standbys = draw(0, 2), node_count = draw(1, 3);
    std::vector<std::int32_t> nodes, order;
    for (int d = 0; d < users + standbys; ++d) {
      // Each node is there, so that they have no gap.
      nodes.push_back(d < node_count ? d : draw(0, node_count - 1));
      order.push_back(d);
    }
    const std::int64_t elements = draw(0, 1) == 0 ? draw(1, 4000) : draw(4000, 40'000);
    std::shuffle(order.begin(), order.end(), random);
    const std::int32_t twice = draw(0, users - 1);
    Holders holders(users, elements, standbys, nodes, seed, twice);
    const Holders chain(users, elements, 0, {}, seed, twice);
    const at::Tensor expected = holders.expected();
    differ += !at::equal(expected, chain.expected());
    holders.run(order);
    for (auto& [device, uses] : holders.gradients) CHECK(at::equal(uses.begin()->second, expected));
    for (auto& [device, sum] : holders.kept) CHECK(at::equal(sum, expected));
    double squared = 0;
    for (const GroupNorm& norm : holders.norms) squared += norm.squared;
    CHECK(squared == Catch::Approx(state::squared_norm(expected)).epsilon(1e-12));
    for (auto& mailbox : holders.mailboxes) {
      mailbox->forget_ended_sends();
      CHECK(mailbox->all_sent());  // Nothing was sent that nobody has taken.
    }
  }
  CHECK(differ > 20);
}

TEST_CASE("a gradient that is not finite shows in the norm of its chunk", "[engine]") {
  Holders holders(3, 20'000);
  holders.gradients[1].begin()->second.fill_(std::numeric_limits<float>::infinity());
  holders.run({0, 1, 2});
  REQUIRE(holders.norms.size() == 3);
  for (const GroupNorm& norm : holders.norms) CHECK_FALSE(norm.finite);
}

}  // namespace
}  // namespace troupe::engine
