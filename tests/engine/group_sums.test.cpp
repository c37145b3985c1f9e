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
#include <set>
#include <vector>

#include "runtime/state/gradient_norm.hpp"
#include "transport/inproc/hub.hpp"
#include "transport/registry.hpp"

namespace troupe::engine {
namespace {

/// Devices on nodes of their own that hold one group; the last one uses it twice. Behind them
/// stand those on standby.
struct Holders {
  ParallelPlan plan;
  std::map<std::int32_t, at::Tensor> kept;                              ///< By device on standby.
  std::map<std::int32_t, std::map<std::size_t, at::Tensor>> gradients;  ///< By device and use.
  std::unique_ptr<Device> host = make_device({});
  std::vector<std::unique_ptr<transport::Transport>> transports;
  std::vector<std::unique_ptr<TensorMailbox>> mailboxes;
  std::vector<std::unique_ptr<GroupSums>> sums;
  std::vector<GroupNorm> norms;

  Holders(std::int32_t users, std::int64_t elements, std::int32_t standbys = 0) {
    const std::int32_t count = users + standbys;
    ParameterGroup group{"layer", false, elements, {}, {}};
    auto random = at::make_generator<at::CPUGeneratorImpl>(7);
    for (std::int32_t d = 0; d < count; ++d) {
      plan.devices.push_back({NodeId{d}, 0});
      group.holders.push_back(DeviceId{d});
      if (d >= users) {
        kept[d] = at::full({elements}, 1e30, at::kFloat);  // Of a step that was discarded.
        continue;
      }
      for (int uses = d + 1 == users ? 2 : 1; uses > 0; --uses) {
        gradients[d][group.uses.size()] = at::randn({elements}, random, at::kFloat);
        group.uses.push_back({StageId{plan.stages.size()}, {ModuleId{0}, 0}});
        plan.stages.push_back({ReplicaId{d}, {}, {DeviceId{d}}});
      }
    }
    group.standbys = standbys;
    plan.groups = {group};
    transport::TransportOptions options;
    options.hub = std::make_shared<transport::InprocHub>();
    for (options.self = 0; options.self < count; ++options.self)
      transports.push_back(transport::create_transport("inproc", options).value());
    for (std::int32_t d = 0; d < count; ++d) {
      for (std::int32_t peer = 0; peer < count; ++peer)
        REQUIRE(transport(d).connect(peer, transport(peer).address()).ok());
      mailboxes.push_back(std::make_unique<TensorMailbox>(transport(d), *host, 1, [] {}));
      mailboxes.back()->begin(1, Bytes{1 << 30});
      sums.push_back(std::make_unique<GroupSums>(
          plan, DeviceId{d}, [this, d](GroupId, std::optional<std::size_t> use) -> at::Tensor& {
            return use ? gradients.at(d).at(*use) : kept.at(d);
          }));
    }
  }

  transport::Transport& transport(std::int32_t device) {
    return *transports[static_cast<std::size_t>(device)];
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
    for (const auto d : order)
      if (role(d).sends)
        for (const Parcel& parcel : sums_of(d).send(GroupId{0})) mailbox(d).send(parcel);
    for (const auto d : order) {
      if (role(d).adds == 0) continue;
      const auto parcels = sums_of(d).reduce(GroupId{0}, take(d, ActionKind::reduce));
      for (const Parcel& parcel : parcels) mailbox(d).send(parcel);
      norms.push_back(sums_of(d).measure(GroupId{0}));
    }
    for (const auto d : order)
      if (role(d).takes) sums_of(d).receive(GroupId{0}, take(d, ActionKind::reduce_receive));
  }

  /// Device after device, each device's uses first.
  at::Tensor expected() const {
    at::Tensor sum;
    for (const auto& [device, uses] : gradients) {
      at::Tensor own;
      for (const auto& [use, tensor] : uses) own = own.defined() ? own.add(tensor) : tensor.clone();
      sum = sum.defined() ? sum.add(own) : own;
    }
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

TEST_CASE("a gradient that is not finite shows in the norm of its chunk", "[engine]") {
  Holders holders(3, 20'000);
  holders.gradients[1].begin()->second.fill_(std::numeric_limits<float>::infinity());
  holders.run({0, 1, 2});
  REQUIRE(holders.norms.size() == 3);
  for (const GroupNorm& norm : holders.norms) CHECK_FALSE(norm.finite);
}

}  // namespace
}  // namespace troupe::engine
