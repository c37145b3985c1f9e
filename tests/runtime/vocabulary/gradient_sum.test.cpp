#include "runtime/vocabulary/gradient_sum.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

namespace troupe {
namespace {

ParameterGroup group_of(std::int64_t elements, std::int32_t holders) {
  ParameterGroup group{"layer", false, elements, {}, {}};
  for (std::int32_t h = 0; h < holders; ++h) group.holders.push_back(DeviceId{h});
  return group;
}

TEST_CASE("chunks cover a group once, and no holder owns two", "[vocabulary][property]") {
  for (const std::int64_t elements : {1, 5, 4095, 4096, 8191, 8192, 100'003, 5'000'000})
    for (std::int32_t holders = 1; holders <= 80; ++holders) {
      CAPTURE(elements, holders);
      const auto group = group_of(elements, holders);
      std::int64_t next = 0;
      std::set<std::int32_t> owners;
      for (const SumChunk& chunk : sum_chunks(group, GroupId{7})) {
        CHECK(chunk.begin == next);
        CHECK(chunk.size() > 0);
        next = chunk.end;
        CHECK(owners.insert(chunk.owner).second);
        CHECK(chunk.owner < holders);
      }
      CHECK(next == elements);
    }
}

TEST_CASE("each of n holders of a large group moves 2 (n - 1) / n of its bytes", "[vocabulary]") {
  constexpr std::int64_t kElements = 1'680'000;
  for (const std::int32_t holders : {2, 3, 4, 8, 64}) {
    const auto group = group_of(kElements, holders);
    const auto chunks = sum_chunks(group, GroupId{0});
    REQUIRE(chunks.size() == static_cast<std::size_t>(holders));
    for (std::int32_t h = 0; h < holders; ++h) {
      std::int64_t sent = 0;
      for (const SumChunk& chunk : chunks)
        sent += chunk.owner == h ? (holders - 1) * chunk.size() : chunk.size();
      CHECK(sent == 2 * (holders - 1) * (kElements / holders));
    }
  }
}

TEST_CASE("small groups are added up by one holder each, another one for the next group",
          "[vocabulary]") {
  const auto group = group_of(100, 3);
  for (std::int32_t g = 0; g < 6; ++g) {
    const auto chunks = sum_chunks(group, GroupId{g});
    REQUIRE(chunks.size() == 1);
    CHECK(chunks[0].owner == g % 3);
  }
}

TEST_CASE("a holder sends unless it owns all, and adds what it owns", "[vocabulary]") {
  const auto one = group_of(100, 1), small = group_of(100, 2), large = group_of(10'000, 2);
  const auto role = [](const ParameterGroup& group, std::int32_t device) {
    ParallelPlan plan;
    plan.devices.resize(group.holders.size());
    plan.groups = {group};
    return role_of(plan_sum(plan, GroupId{0}), DeviceId{device});
  };
  CHECK_FALSE(role(one, 0).sends);
  CHECK(role(one, 0).adds == 100);
  CHECK_FALSE(role(small, 0).sends);
  CHECK(role(small, 1).sends);
  CHECK(role(small, 1).adds == 0);
  CHECK(role(large, 0).sends);
  CHECK(role(large, 1).adds == 5000);
  CHECK(role(large, 5).place == -1);
  CHECK_FALSE(role(large, 5).sends);
}

TEST_CASE("standby holders own no chunk, give nothing and take all sums",
          "[vocabulary][property]") {
  for (const std::int64_t elements : {1, 4096, 8192, 100'003})
    for (std::int32_t users = 1; users <= 9; ++users)
      for (std::int32_t standbys = 0; standbys <= 3; ++standbys) {
        CAPTURE(elements, users, standbys);
        const auto alone = group_of(elements, users);
        auto group = group_of(elements, users + standbys);
        group.standbys = standbys;
        const auto expected = sum_chunks(alone, GroupId{5}), chunks = sum_chunks(group, GroupId{5});
        REQUIRE(chunks.size() == expected.size());
        for (std::size_t c = 0; c < chunks.size(); ++c) {
          CHECK(chunks[c].owner == expected[c].owner);
          CHECK(chunks[c].begin == expected[c].begin);
        }
        ParallelPlan plan;
        plan.devices.resize(group.holders.size());
        plan.groups.assign(6, group);
        const auto roles = plan_sum(plan, GroupId{5}).roles;
        for (std::int32_t h = 0; h < users + standbys; ++h) {
          const SumRole& role = roles[static_cast<std::size_t>(h)];
          if (h < users) {
            CHECK(role.sends == role.takes);
          } else {
            CHECK((!role.sends && role.takes && role.adds == 0));
          }
        }
      }
}

TEST_CASE("a device's uses are its own, in their order", "[vocabulary]") {
  ParallelPlan plan;
  plan.devices.resize(3);
  for (const int device : {2, 0, 2, 0, 1})
    plan.stages.push_back({ReplicaId{0}, {}, {DeviceId{device}}});
  ParameterGroup group{"tied", true, 9000, {}, {DeviceId{2}, DeviceId{0}}};
  for (const int stage : {0, 1, 2, 3}) group.uses.push_back({StageId{stage}, {ModuleId{0}, 0}});
  plan.groups = {group};
  const auto sum = plan_sum(plan, GroupId{0});
  REQUIRE(sum.roles.size() == 2);
  CHECK(sum.roles[0].uses == std::vector<std::size_t>{0, 2});
  CHECK(sum.roles[1].uses == std::vector<std::size_t>{1, 3});
}

/// A plan of one group, `id`, whose holders stand on these nodes; the last ones are on standby.
ParallelPlan plan_on(const std::vector<int>& nodes, std::int64_t elements, GroupId id,
                     std::int32_t standbys = 0) {
  ParallelPlan plan;
  for (const int node : nodes) plan.devices.push_back({NodeId{node}, 0});
  auto group = group_of(elements, static_cast<std::int32_t>(nodes.size()));
  group.standbys = standbys;
  group.order = SumOrder::tree_by_node;
  plan.groups.assign(id.index() + 1, group);
  return plan;
}

struct DrawnHolders {
  std::vector<int> nodes;
  std::int32_t standbys = 0;
  std::int64_t elements = 1;
  GroupId id;

  explicit DrawnHolders(std::uint32_t seed) {
    std::mt19937 random(seed);
    const auto draw = [&](int from, int to) {
      return std::uniform_int_distribution(from, to)(random);
    };
    const int users = draw(1, 9), node_count = draw(1, 4);
    standbys = draw(0, 3);
    for (int h = users + standbys; h > 0; --h) nodes.push_back(draw(0, node_count - 1));
    elements = draw(0, 1) == 0 ? draw(1, 5000) : draw(5000, 50'000);
    id = GroupId{draw(0, 5)};
  }
  ParallelPlan plan() const { return plan_on(nodes, elements, id, standbys); }
  std::int32_t users() const { return static_cast<std::int32_t>(nodes.size()) - standbys; }
};

TEST_CASE("in a tree every gradient is added once, in order, and every holder gets the sum once",
          "[vocabulary][property]") {
  int trees = 0, relays = 0;
  for (std::uint32_t seed = 0; seed < 1000; ++seed) {
    CAPTURE(seed);
    const DrawnHolders drawn(seed);
    const auto plan = drawn.plan();
    const GroupSum sum = plan_sum(plan, drawn.id);
    const auto holders = static_cast<std::int32_t>(drawn.nodes.size());
    // By node, in the order of first holders; in each node holder after holder.
    std::vector<int> node_order;
    std::vector<std::int32_t> expected;
    for (const int node : drawn.nodes)
      if (std::find(node_order.begin(), node_order.end(), node) == node_order.end())
        node_order.push_back(node);
    for (const int node : node_order)
      for (std::int32_t h = 0; h < drawn.users(); ++h)
        if (drawn.nodes[static_cast<std::size_t>(h)] == node) expected.push_back(h);
    for (std::size_t c = 0; c < sum.chunks.size(); ++c) {
      // What each holder has of the chunk: whose gradients, in which order; all, once it is summed.
      std::vector<std::vector<std::int32_t>> has;
      for (std::int32_t h = 0; h < holders; ++h)
        has.push_back(h < drawn.users() ? std::vector{h} : std::vector<std::int32_t>{});
      std::vector<int> summed(has.size());
      std::map<std::pair<int, int>, int> crossings;
      using Key = std::tuple<std::int32_t, ActionKind, std::int32_t, ActionKind>;
      std::map<Key, std::vector<std::int32_t>> sent;
      for (const ActionKind kind : kSumActions)
        for (const SumRole& role : sum.roles) {
          const auto self = static_cast<std::size_t>(role.place);
          std::vector<std::vector<std::int32_t>> taken;
          for (const SumTransfer& from : sum.taken(role.place, kind)) {
            if (from.chunk != c) continue;
            REQUIRE(role.acts(kind));
            const auto there = sent.find({from.holder, from.kind, role.place, kind});
            REQUIRE(there != sent.end());  // It was sent earlier, and nobody else has taken it.
            taken.push_back(there->second);
            sent.erase(there);
          }
          const bool is_owner = sum.chunks[c].owner == role.place;
          if (kind == ActionKind::reduce ? is_owner
                                         : kind == ActionKind::reduce_partial && !taken.empty()) {
            // One's own stands where one's node, and in it oneself, stands.
            const auto comes_before = [&](const auto& one, const auto& other) {
              return std::find(expected.begin(), expected.end(), one.front()) <
                     std::find(expected.begin(), expected.end(), other.front());
            };
            CHECK(std::is_sorted(taken.begin(), taken.end(), comes_before));
            taken.insert(std::upper_bound(taken.begin(), taken.end(), has[self], comes_before),
                         has[self]);
            has[self].clear();
            for (const auto& parts : taken)
              has[self].insert(has[self].end(), parts.begin(), parts.end());
            if (is_owner) ++summed[self];
          } else if (!taken.empty()) {
            REQUIRE(taken.size() == 1);
            has[self] = taken.front();
            ++summed[self];
          }
          for (const SumTransfer& to : sum.sent(role.place, kind)) {
            if (to.chunk != c) continue;
            REQUIRE(role.acts(kind));
            REQUIRE(sent.emplace(Key{role.place, kind, to.holder, to.kind}, has[self]).second);
            relays += kind == ActionKind::reduce_relay;
            const int from = drawn.nodes[self];
            const int there = drawn.nodes[static_cast<std::size_t>(to.holder)];
            if (from != there) ++crossings[{from, there}];
          }
        }
      CHECK(sent.empty());
      for (std::size_t h = 0; h < has.size(); ++h) {
        CHECK(has[h] == expected);
        CHECK(summed[h] == 1);
      }
      for (const auto& [nodes, times] : crossings) CHECK(times == 1);
      trees += sum.branches.size() > 1 && sum.branches.size() < sum.roles.size();
    }
  }
  CHECK(trees > 500);
  CHECK(relays > 500);
}

TEST_CASE("two nodes of two holders: who adds up what for whom", "[vocabulary]") {
  // Four chunks of 5000 elements, chunk c of holder c. Of others' chunks each holder adds one up
  // for its node, in turn.
  const auto plan = plan_on({0, 0, 1, 1}, 20'000, GroupId{0});
  const GroupSum sum = plan_sum(plan, GroupId{0});
  REQUIRE(sum.branches.size() == 2);
  CHECK(sum.branches[0].adders == std::vector<std::int32_t>{0, 1, 0, 1});
  CHECK(sum.branches[1].adders == std::vector<std::int32_t>{2, 3, 2, 3});
  for (const SumRole& role : sum.roles) {
    CHECK((role.sends && role.takes));
    CHECK(role.adds == 5000);
    CHECK(role.partials == 5000);
    CHECK(role.relays == 5000);
  }
  using enum ActionKind;
  using Transfers = std::vector<SumTransfer>;
  CHECK(sum.sent(0, reduce_send) == Transfers{{1, 1, reduce}, {3, 1, reduce_partial}});
  CHECK(sum.taken(0, reduce_partial) == Transfers{{2, 1, reduce_send}});
  CHECK(sum.sent(0, reduce_partial) == Transfers{{2, 2, reduce}});
  CHECK(sum.taken(0, reduce) == Transfers{{0, 1, reduce_send}, {0, 2, reduce_partial}});
  CHECK(sum.sent(0, reduce) == Transfers{{0, 1, reduce_receive}, {0, 2, reduce_relay}});
  CHECK(sum.taken(0, reduce_relay) == Transfers{{2, 2, reduce}});
  CHECK(sum.sent(0, reduce_relay) == Transfers{{2, 1, reduce_receive}});
  CHECK(sum.taken(0, reduce_receive) == Transfers{{1, 1, reduce}, {3, 1, reduce_relay}});
}

TEST_CASE("in a tree a holder alone on its node sends to owners, one on standby adds nothing",
          "[vocabulary]") {
  // Holders 0 and 1 on node 0, 2 on node 1; on standby 3 on node 1, 4 and 5 on node 2. Two chunks
  // would need 8192 elements: holder 0 owns the only one.
  const auto plan = plan_on({0, 0, 1, 1, 2, 2}, 8000, GroupId{0}, 3);
  const GroupSum sum = plan_sum(plan, GroupId{0});
  using enum ActionKind;
  using Transfers = std::vector<SumTransfer>;
  CHECK(sum.taken(0, reduce) == Transfers{{0, 1, reduce_send}, {0, 2, reduce_send}});
  CHECK(sum.sent(0, reduce) ==
        Transfers{{0, 1, reduce_receive}, {0, 2, reduce_relay}, {0, 4, reduce_relay}});
  CHECK(sum.sent(2, reduce_relay) == Transfers{{0, 3, reduce_receive}});
  CHECK(sum.sent(4, reduce_relay) == Transfers{{0, 5, reduce_receive}});
  for (const SumRole& role : sum.roles) CHECK(role.partials == 0);
  CHECK_FALSE(sum.roles[2].takes);
  CHECK(sum.roles[5].takes);
}

TEST_CASE("in a call to NCCL all holders enter and take, and owners of chunks measure them",
          "[vocabulary]") {
  // Three holders and one on standby; 8192 elements are two chunks, of holders 0 and 1.
  auto plan = plan_on({0, 0, 1, 1}, 8192, GroupId{0}, 1);
  plan.groups[0].order = SumOrder::nccl;
  const GroupSum sum = plan_sum(plan, GroupId{0});
  using enum ActionKind;
  using Transfers = std::vector<SumTransfer>;
  REQUIRE(sum.is_call);
  REQUIRE(sum.roles.size() == 4);
  for (const SumRole& role : sum.roles) {
    CAPTURE(role.place);
    CHECK(role.sends);
    CHECK(role.takes);
    for (const ActionKind kind : {reduce_partial, reduce, reduce_relay})
      CHECK_FALSE(role.acts(kind));
    CHECK(role.own_chunk == (role.place < 2 ? role.place : -1));
  }
  CHECK(sum.sent(0, reduce_send) ==
        Transfers{{0, 1, reduce_receive}, {0, 2, reduce_receive}, {0, 3, reduce_receive}});
  CHECK(sum.taken(3, reduce_receive) ==
        Transfers{{0, 0, reduce_send}, {0, 1, reduce_send}, {0, 2, reduce_send}});
  CHECK(sum.sent(0, reduce).empty());
  CHECK(sum.taken(0, reduce).empty());
}

TEST_CASE("NCCL is called where the job wants it and a group has several holders", "[vocabulary]") {
  for (const SumOrder sums : {SumOrder::nccl_chain, SumOrder::nccl}) {
    auto plan = plan_on({0, 0, 1, 1}, 40'000, GroupId{0});
    plan.model.sums = sums;
    CHECK(sum_order(plan, plan.groups[0], GroupId{0}) == sums);
    // Each rank of a tensor-parallel holder has a part of the elements alone.
    plan.stages.push_back({ReplicaId{0}, {}, {DeviceId{0}, DeviceId{1}}, {2, 1}});
    plan.groups[0].uses.push_back({StageId{0}, {ModuleId{0}, 0}});
    CHECK(sum_order(plan, plan.groups[0], GroupId{0}) == SumOrder::tree_by_node);
    plan = plan_on({0}, 40'000, GroupId{0});
    plan.model.sums = sums;
    CHECK(sum_order(plan, plan.groups[0], GroupId{0}) == SumOrder::chain);
  }
}

TEST_CASE("a tree is picked where holders share nodes and several nodes have some",
          "[vocabulary]") {
  const auto order = [](const std::vector<int>& nodes, std::int32_t standbys = 0) {
    const auto plan = plan_on(nodes, 40'000, GroupId{0}, standbys);
    return sum_order(plan, plan.groups[0], GroupId{0});
  };
  CHECK(order({0}) == SumOrder::chain);
  CHECK(order({0, 1, 2, 3}) == SumOrder::chain);
  CHECK(order({0, 0, 0}) == SumOrder::chain);
  CHECK(order({0, 0, 1, 1}) == SumOrder::tree_by_node);
  CHECK(order({0, 1, 0, 0}) == SumOrder::tree_by_node);
  // Standby holders change no bit, so they do not count.
  CHECK(order({0, 1, 1, 1}, 2) == SumOrder::chain);
  CHECK(order({0, 0, 1, 2, 2}, 2) == order({0, 0, 1}));
  CHECK(order({0, 0, 1}) == SumOrder::tree_by_node);
}

TEST_CASE("the order that is picked moves fewest elements through the busiest node",
          "[vocabulary][property]") {
  int trees = 0;
  for (std::uint32_t seed = 0; seed < 1000; ++seed) {
    CAPTURE(seed);
    DrawnHolders drawn(seed);
    drawn.nodes.resize(static_cast<std::size_t>(drawn.users()));
    drawn.standbys = 0;
    auto plan = drawn.plan();
    const auto busiest = [&](SumOrder order) {
      plan.groups[drawn.id.index()].order = order;
      const GroupSum sum = plan_sum(plan, drawn.id);
      std::map<int, std::int64_t> out, in;
      for (const SumRole& role : sum.roles)
        for (const ActionKind kind : kSumActions)
          for (const SumTransfer& to : sum.sent(role.place, kind)) {
            const int from = drawn.nodes[static_cast<std::size_t>(role.place)];
            const int there = drawn.nodes[static_cast<std::size_t>(to.holder)];
            if (from == there) continue;
            out[from] += sum.chunks[to.chunk].size();
            in[there] += sum.chunks[to.chunk].size();
          }
      std::int64_t most = 0;
      for (const auto* way : {&out, &in})
        for (const auto& [node, elements] : *way) most = std::max(most, elements);
      return most;
    };
    const bool tree = busiest(SumOrder::tree_by_node) < busiest(SumOrder::chain);
    trees += tree;
    CHECK(sum_order(plan, plan.groups[drawn.id.index()], drawn.id) ==
          (tree ? SumOrder::tree_by_node : SumOrder::chain));
  }
  CHECK(trees > 300);
}

}  // namespace
}  // namespace troupe
