#include "actors/coordination/membership.hpp"

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <map>
#include <set>
#include <vector>

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;
using Phase = Member::Phase;

Shard shard(int parameter, const std::vector<DeviceSlot>& holders) {
  return {{ParameterId{parameter}, StateKind::value, {}}, holders};
}

/// Nodes that are all ready.
Membership members_of(int count) {
  Membership members(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    members.join(NodeId{i}, "host", 100 + i, {});
    members.ready(NodeId{i}, false);
  }
  return members;
}

std::vector<NodeId> order_of(const std::vector<Suspect>& suspects) {
  std::vector<NodeId> order;
  for (const Suspect& suspect : suspects) order.push_back(suspect.node);
  return order;
}

TEST_CASE("a place is free until somebody comes, and again once its node is gone",
          "[coordination]") {
  Membership members(3);
  CHECK((members.free_place(-1, 1) == NodeId{1}));  // The first one is the head's own.
  CHECK((members.free_place(0, 1) == NodeId{0}));
  CHECK_FALSE(members.free_place(3, 0));
  for (int i = 0; i < 3; ++i) members.join(NodeId{i}, "host", i, {});
  CHECK_FALSE(members.free_place(-1, 1));
  members.gone(NodeId{0});
  CHECK((members.free_place(-1, 1) == NodeId{0}));
  CHECK(members[NodeId{0}].phase == Phase::gone);
  members.clear(NodeId{0});
  CHECK(members[NodeId{0}].phase == Phase::missing);
}

TEST_CASE("who has not opened its data takes no part, and is late after its time",
          "[coordination]") {
  Membership members(2);
  members.join(NodeId{0}, "host", 1, Time{} + 10s);
  CHECK(members.is_there(NodeId{0}));
  CHECK_FALSE(members.takes_part(NodeId{0}));
  CHECK(members.late(Time{} + 12s, 2s).empty());
  CHECK((members.late(Time{} + 13s, 2s) == std::vector{NodeId{0}}));
  members.ready(NodeId{0}, true);
  CHECK((members.present() == std::set{NodeId{0}}));
  CHECK((members.newcomers() == std::set{NodeId{0}}));
  CHECK(members.late(Time{} + 13s, 2s).empty());
  CHECK_FALSE(members.is_there(NodeId{7}));
}

TEST_CASE("a generation is up once all that were told of it have said so", "[coordination]") {
  Membership members = members_of(3);
  members.go_on_from(4);
  CHECK(members.begin_generation() == 5);
  members.go_on_from(2);  // Never back.
  CHECK(members.generation() == 5);
  CHECK_FALSE(members.fetched(NodeId{0}));
  CHECK_FALSE(members.fetched(NodeId{0}));  // Twice is once.
  CHECK_FALSE(members.fetched(NodeId{1}));
  CHECK(members.fetched(NodeId{2}));
  members.gone(NodeId{2});
  CHECK_FALSE(members.applied(NodeId{0}));
  CHECK_FALSE(members.applied(NodeId{2}));  // Nobody waits for it, nor hears it.
  CHECK(members.applied(NodeId{1}));
  CHECK(members[NodeId{2}].phase == Phase::gone);
}

TEST_CASE("one that joins while a layout comes up is not waited for", "[coordination]") {
  Membership members = members_of(2);
  members.gone(NodeId{1});
  members.begin_generation();
  members.join(NodeId{1}, "host", 9, {});
  members.ready(NodeId{1}, true);
  CHECK_FALSE(members.fetched(NodeId{1}));
  CHECK(members.fetched(NodeId{0}));
}

TEST_CASE("who leaves stays until it is gone, or is asked to", "[coordination]") {
  Membership members = members_of(3);
  members.leave(NodeId{1}, {"drained", {}, false});
  CHECK(members.wants_change());
  CHECK((members.staying() == std::set{NodeId{0}, NodeId{2}}));
  CHECK(members.present().size() == 3);
  CHECK(members.keep_leaving().size() == 1);
  CHECK(members.staying().size() == 3);
  CHECK_FALSE(members.wants_change());
  members.leave(NodeId{1}, {"drained", {}, false});
  members.gone(NodeId{1});
  CHECK_FALSE(members.wants_change());
}

TEST_CASE("a signal to one that was asked to leave is not forgotten", "[coordination]") {
  Membership members = members_of(3);
  members.leave(NodeId{1}, {"drained", {}, false});
  CHECK_FALSE(members.takes_state_away());
  members.leave(NodeId{1}, {"stopped by SIGTERM", {}, true});
  CHECK(members.takes_state_away());
  members.leave(NodeId{1}, {"drained", {}, false});  // Its process ends all the same.
  members.leave(NodeId{2}, {"drained", {}, false});
  const auto asked = members.keep_asked();
  CHECK(asked.size() == 1);
  CHECK(asked.contains(NodeId{2}));
  REQUIRE(members.leaving().contains(NodeId{1}));
  CHECK(members.leaving().at(NodeId{1}).why == "stopped by SIGTERM");
}

TEST_CASE("signals to more than half of the nodes are meant for the job", "[coordination]") {
  Membership members = members_of(4);
  CHECK(members.told_to_end(NodeId{0}, "stopped by SIGTERM"));
  CHECK_FALSE(members.told_to_end(NodeId{1}, "stopped by SIGTERM"));
  CHECK_FALSE(members.settle_told().is_for_all);  // Two of four.
  for (int i = 0; i < 3; ++i) members.told_to_end(NodeId{i}, "stopped by SIGTERM");
  members.gone(NodeId{0});
  const ToldToEnd told = members.settle_told();
  CHECK(told.is_for_all);  // Three, where three are left.
  CHECK(told.nodes.size() == 2);
  CHECK(members.settle_told().nodes.empty());
}

TEST_CASE("the most suspicious node lost the most connections, then is named most often",
          "[coordination]") {
  Membership members = members_of(4);
  CHECK_FALSE(members.miss(NodeId{0}, NodeId{1}));  // Nobody was told of a layout yet.
  members.begin_generation();
  // By hand: 2 is apart from 0, 1 and 3; each of these from 2 alone, and of them 0 was named.
  CHECK(members.miss(NodeId{2}, NodeId{0}));
  CHECK(members.miss(NodeId{1}, NodeId{2}));
  CHECK(members.miss(NodeId{3}, NodeId{2}));
  CHECK((order_of(members.suspects({}, 0)) ==
         std::vector{NodeId{2}, NodeId{0}, NodeId{3}, NodeId{1}}));
  CHECK_FALSE(members.is_miss_explained());
  members.gone(NodeId{0});
  members.gone(NodeId{2});
  CHECK(members.is_miss_explained());
  members.begin_generation();
  CHECK(members.missed().empty());
}

TEST_CASE("that nodes miss each other is explained by the loss of one of them", "[coordination]") {
  Membership members = members_of(3);
  members.begin_generation();
  members.miss(NodeId{0}, NodeId{1});
  members.miss(NodeId{1}, NodeId{0});  // As of a way that was never there.
  CHECK_FALSE(members.is_miss_explained());
  members.gone(NodeId{1});
  CHECK(members.is_miss_explained());
  members.miss(NodeId{2}, NodeId{0});  // That is another matter.
  CHECK_FALSE(members.is_miss_explained());
}

TEST_CASE("a way that broke is broken in the next generation too, where both ends are there still",
          "[coordination]") {
  Membership members = members_of(4);
  members.begin_generation();
  members.miss(NodeId{0}, NodeId{1});
  members.miss(NodeId{2}, NodeId{1});
  members.miss(NodeId{3}, NodeId{2});
  members.miss(NodeId{1}, NodeId{3});
  members.gone(NodeId{3});
  members.join(NodeId{3}, "host", 9, {});  // Another process, to which all ways are new.
  members.ready(NodeId{3}, true);
  members.begin_generation();
  const std::map<NodeId, std::set<NodeId>> broken{{NodeId{1}, {NodeId{0}, NodeId{2}}}};
  CHECK((members.missed() == broken));
  CHECK_FALSE(members.is_miss_explained());
  members.gone(NodeId{1});
  members.begin_generation();
  CHECK(members.missed().empty());
}

TEST_CASE("a way that could not be made counts until the next generation, which tries it anew",
          "[coordination]") {
  const NodeId a{0}, b{1}, c{2};
  Membership members = members_of(3);
  members.begin_generation();
  for (const auto& [reporter, peer] : {std::pair{a, b}, std::pair{b, a}, std::pair{c, b}})
    CHECK(members.miss(reporter, peer, NoWay::unmade));
  CHECK(order_of(members.suspects({}, 0)).size() == 3);
  // Of one that broke it makes nothing better that one end could not make it.
  CHECK(members.miss(b, c, NoWay::unmade));
  CHECK(members.miss(b, c));
  for (const NodeId node : {a, b}) CHECK(members.miss_head(node, "refused", NoWay::unmade));
  CHECK(members.miss_head(b, "reset"));
  CHECK(members.cut_off().size() == 2);
  const std::map<NodeId, std::set<NodeId>> broken{{c, {b}}};
  for (int generation = 2; generation < 4; ++generation) {
    members.begin_generation();
    CHECK((members.missed() == broken));
    CHECK((members.cut_off() == std::map<NodeId, std::string>{{b, "refused"}}));
    CHECK(members.miss(b, c, NoWay::unmade));
    CHECK(members.miss_head(b, "refused", NoWay::unmade));
  }
  members.miss(a, b, NoWay::unmade);  // It has failed again.
  CHECK(members.missed().contains(b));
}

TEST_CASE("nodes without a way to the head are cut off, unless none has one", "[coordination]") {
  Membership members = members_of(3);
  CHECK_FALSE(members.miss_head(NodeId{1}, "refused"));  // It was told of no layout yet.
  members.begin_generation();
  CHECK(members.miss_head(NodeId{1}, "refused"));
  CHECK(members.miss_head(NodeId{1}, "refused again"));
  CHECK(members.miss_head(NodeId{0}, "no route"));
  CHECK_FALSE(members.is_head_cut_off());
  CHECK(members.miss_head(NodeId{2}, "refused"));
  CHECK(members.is_head_cut_off());
  members.gone(NodeId{0});
  members.gone(NodeId{2});
  members.join(NodeId{2}, "host", 9, {});  // Another process, to which its ways are new.
  members.ready(NodeId{2}, true);
  members.begin_generation();
  CHECK((members.cut_off() == std::map<NodeId, std::string>{{NodeId{1}, "refused"}}));
  CHECK_FALSE(members.is_head_cut_off());
}

TEST_CASE("a way to the head that broke counts once something needs it", "[coordination]") {
  Membership members = members_of(3);
  CHECK_FALSE(members.lose_way_to_head(NodeId{1}, "reset"));  // It was told of no layout yet.
  members.begin_generation();
  for (const std::int32_t id : {0, 1, 2}) CHECK(members.lose_way_to_head(NodeId{id}, "reset"));
  CHECK_FALSE(members.lose_way_to_head(NodeId{1}, "reset"));  // That is known.
  CHECK(members.cut_off().empty());
  members.gone(NodeId{2});
  members.join(NodeId{2}, "host", 9, {});  // Another process.
  members.ready(NodeId{2}, true);
  members.begin_generation();
  CHECK(members.miss_head(NodeId{0}, "refused"));
  members.need_ways_to_head();
  CHECK((members.cut_off() ==
         std::map<NodeId, std::string>{{NodeId{0}, "refused"}, {NodeId{1}, "reset"}}));
}

TEST_CASE(
    "a loss costs the shards that nobody else holds, then those with fewer holders than promised",
    "[coordination]") {
  const DeviceSlot a{NodeId{0}, 0}, b{NodeId{0}, 1}, c{NodeId{1}, 0}, d{NodeId{2}, 0};
  const StatePlacement placement{shard(0, {a, b}), shard(1, {a, c}), shard(2, {a, c, d})};
  // By hand: shard 0 has one holder on both its devices, 1 has two, 2 has three.
  CHECK((loss_costs(placement, 0) ==
         std::map<NodeId, LossCost>{{NodeId{0}, {1, 1}}, {NodeId{1}, {}}, {NodeId{2}, {}}}));
  CHECK((loss_costs(placement, 1) ==
         std::map<NodeId, LossCost>{{NodeId{0}, {1, 2}}, {NodeId{1}, {0, 1}}, {NodeId{2}, {}}}));
  CHECK(
      (loss_costs(placement, 2) ==
       std::map<NodeId, LossCost>{{NodeId{0}, {1, 3}}, {NodeId{1}, {0, 2}}, {NodeId{2}, {0, 1}}}));
}

TEST_CASE("of the ends of a cut link the one comes first whose loss costs fewer last holders",
          "[coordination]") {
  const DeviceSlot a{NodeId{0}, 0}, b{NodeId{1}, 0}, c{NodeId{2}, 0};
  Membership members = members_of(3);
  members.begin_generation();
  members.miss(NodeId{0}, NodeId{1});
  members.miss(NodeId{1}, NodeId{0});
  const auto order = [&](const StatePlacement& held, std::int32_t tolerance) {
    return order_of(members.suspects(held, tolerance));
  };
  const std::vector higher_first{NodeId{1}, NodeId{0}}, lower_first{NodeId{0}, NodeId{1}};
  CHECK((order({}, 1) == higher_first));
  // Node 1 alone has shard 0, which outweighs that node 0 has two where two are promised.
  const StatePlacement last{shard(0, {b}), shard(1, {a, c}), shard(2, {a, c})};
  CHECK((order(last, 0) == lower_first));
  CHECK((order(last, 1) == lower_first));
  // Nobody's last: that of node 1 is one more where two are promised, and nothing where one is.
  const StatePlacement few{shard(0, {a, c}), shard(1, {b, c}), shard(2, {b, c})};
  CHECK((order(few, 1) == lower_first));
  CHECK((order(few, 0) == higher_first));
  // Node 0 has just come and holds nothing; node 1 holds what others hold, too.
  CHECK((order({shard(0, {b, c})}, 0) == lower_first));
  // Another one names node 1, which outweighs any cost.
  members.miss(NodeId{2}, NodeId{1});
  CHECK(order(few, 1).front() == NodeId{1});
}

TEST_CASE("the first sign against a node counts until the next generation, or until it is gone",
          "[coordination]") {
  Membership members = members_of(3);
  members.begin_generation();
  CHECK_FALSE(members.suspected_since(NodeId{1}));
  for (const auto after : {5s, 3s, 4s}) members.suspect(NodeId{1}, Time{} + after);
  members.suspect(NodeId{2}, Time{} + 6s);
  CHECK(members.suspected_since(NodeId{1}) == Time{} + 3s);
  members.gone(NodeId{1});
  CHECK_FALSE(members.suspected_since(NodeId{1}));
  CHECK(members.suspected_since(NodeId{2}) == Time{} + 6s);
  members.begin_generation();
  CHECK_FALSE(members.suspected_since(NodeId{2}));
}

TEST_CASE("losses are borne as long as each shard has another holder", "[coordination]") {
  const DeviceSlot a{NodeId{0}, 0}, b{NodeId{0}, 1}, c{NodeId{1}, 0}, d{NodeId{2}, 0};
  Membership members(3);
  CHECK(members.losses_borne() == 0);
  members.place({shard(0, {a, c, d}), shard(1, {a, b, d})});
  CHECK(members.losses_borne() == 1);
  members.keep_only({shard(0, {a}), shard(1, {d})});
  CHECK((members.placed() == StatePlacement{shard(0, {a}), shard(1, {d})}));
  CHECK(members.losses_borne() == 0);
  members.join(NodeId{2}, "host", 7, {});  // In the place of one that was lost with what it had.
  CHECK((members.placed() == StatePlacement{shard(0, {a}), shard(1, {})}));
}

TEST_CASE("a shortage is new once, and lasts until enough take part", "[coordination]") {
  Membership members = members_of(2);
  CHECK_FALSE(members.shortage(true, 2, Time{} + 1s));
  const auto begins = members.shortage(true, 3, Time{} + 1s);
  REQUIRE(begins);
  CHECK((begins->is_new && begins->present == 2 && begins->lasted == 0s));
  const auto lasts = members.shortage(true, 3, Time{} + 5s);
  REQUIRE(lasts);
  CHECK((!lasts->is_new && lasts->lasted == 4s));
  CHECK_FALSE(members.shortage(false, 3, Time{} + 6s));
  CHECK(members.shortage(true, 3, Time{} + 7s)->is_new);
}

TEST_CASE("those that were set aside are newcomers again, where they are there and idle",
          "[coordination]") {
  Membership members = members_of(3);
  members.set_aside({NodeId{0}, NodeId{1}, NodeId{2}});
  members.gone(NodeId{2});
  members.look_again({NodeId{0}});
  CHECK((members.newcomers() == std::set{NodeId{1}}));
  members.place_newcomers();
  members.look_again({});
  CHECK(members.newcomers().empty());
  // Some that work might have more.
  members.look_again({NodeId{0}}, {NodeId{0}, NodeId{2}});
  CHECK((members.newcomers() == std::set{NodeId{0}}));
}

}  // namespace
}  // namespace troupe::actors
