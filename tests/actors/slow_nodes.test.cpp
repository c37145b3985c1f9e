#include "actors/supervisor/slow_nodes.hpp"

#include <catch2/catch_test_macros.hpp>
#include <random>

namespace troupe::actors {
namespace {

using Paces = std::vector<NodePace>;

/// Four nodes whose stages would take 10, 20, 5 and 10 ms by the profile, and take `times` as long.
Paces paces(const std::vector<double>& times) {
  const std::vector<double> profile{10, 20, 5, 10};
  Paces made;
  for (std::size_t n = 0; n < times.size(); ++n)
    made.push_back({NodeId{n}, times[n] * profile[n], profile[n]});
  return made;
}

/// What so many steps alike say, all together.
std::vector<SpeedChange> note(SlowNodes& nodes, int steps, const std::vector<double>& times,
                              EpochNumber generation = 1) {
  std::vector<SpeedChange> all;
  for (int step = 0; step < steps; ++step)
    for (const SpeedChange& change : nodes.note(generation, paces(times))) all.push_back(change);
  return all;
}

TEST_CASE("a node that slows down is named after long, once", "[actors]") {
  SlowNodes nodes;
  CHECK(note(nodes, 30, {1, 1, 1, 1}).empty());
  CHECK(note(nodes, 15, {1, 1, 3, 1}).empty());  // Three quarters of 20 steps and no more.
  CHECK((note(nodes, 1, {1, 1, 3, 1}) == std::vector<SpeedChange>{{NodeId{2}, 3, true}}));
  CHECK(note(nodes, 100, {1, 1, 3, 1}).empty());
  // Long as fast as before: that is told too, and a second time counts anew.
  CHECK((note(nodes, 40, {1, 1, 1, 1}) == std::vector<SpeedChange>{{NodeId{2}, 1, false}}));
  CHECK((note(nodes, 40, {1, 1, 4, 1}) == std::vector<SpeedChange>{{NodeId{2}, 4, true}}));
}

TEST_CASE("who was slow under the head before is so until it is as fast as it was", "[actors]") {
  SlowNodes before;
  CHECK(before.notes().empty());
  note(before, 30, {1, 1, 1, 1});
  note(before, 30, {1, 1, 3, 1});
  const std::vector<SlowNodeNote> notes = before.notes();
  CHECK((notes == std::vector<SlowNodeNote>{{NodeId{2}, 3, 1, 1}}));
  SlowNodes nodes;
  for (const SlowNodeNote& each : notes) nodes.recall(each);
  CHECK((nodes.times() == std::map<NodeId, double>{{NodeId{2}, 3}}));
  CHECK(note(nodes, 30, {1, 1, 3, 1}, 2).empty());  // It was named.
  CHECK((nodes.times() == std::map<NodeId, double>{{NodeId{2}, 3}}));
  CHECK((note(nodes, 40, {1, 1, 1, 1}, 2) == std::vector<SpeedChange>{{NodeId{2}, 1, false}}));
  CHECK(nodes.notes().empty());
}

TEST_CASE("what is twice as slow, or slow in between, is not named", "[actors]") {
  SlowNodes nodes;
  CHECK(note(nodes, 30, {1, 1, 1, 1}).empty());
  CHECK(note(nodes, 100, {1, 1, 1, 1.9}).empty());
  for (int turn = 0; turn < 50; ++turn) {
    CHECK(note(nodes, 2, {5, 1, 1, 1}).empty());
    CHECK(note(nodes, 3, {1, 1, 1, 1}).empty());
  }
}

TEST_CASE("what slows all nodes down is no node's fault", "[actors]") {
  SlowNodes nodes;
  CHECK(note(nodes, 30, {1, 1, 1, 1}).empty());
  CHECK(note(nodes, 100, {4, 4, 4, 4}).empty());
  CHECK(note(nodes, 100, {1, 1, 1, 1}).empty());
  // All but one get faster: that one is as fast as it was.
  CHECK(note(nodes, 100, {0.3, 0.3, 1, 0.3}).empty());
}

TEST_CASE("who always took so long does so usually", "[actors]") {
  SlowNodes nodes;
  CHECK(note(nodes, 100, {1, 5, 1, 1}).empty());  // The profile misjudges what it has.
  CHECK((note(nodes, 30, {1, 12, 1, 1}) == std::vector<SpeedChange>{{NodeId{1}, 2.4, true}}));
}

TEST_CASE("of two nodes the faster one is the measure", "[actors]") {
  SlowNodes nodes;
  CHECK(note(nodes, 30, {1, 1}).empty());
  CHECK((note(nodes, 30, {1, 3}) == std::vector<SpeedChange>{{NodeId{1}, 3, true}}));
}

TEST_CASE("another layout begins anew, a node alone is not compared", "[actors]") {
  SlowNodes nodes;
  CHECK(note(nodes, 30, {1, 1, 1, 1}).empty());
  CHECK(note(nodes, 30, {1, 1, 3, 1}, 2).empty());  // It may have got other work.
  CHECK((note(nodes, 30, {1, 1, 9, 1}, 2).size() == 1));
  SlowNodes alone;
  CHECK(note(alone, 30, {1}).empty());
  CHECK(note(alone, 30, {9}).empty());
  // Without work, or without a profile, a node says nothing.
  Paces silent = paces({1, 1});
  silent[1].measured_ms = 0;
  for (int step = 0; step < 50; ++step) CHECK(alone.note(1, silent).empty());
  silent[1] = {NodeId{1}, 5, 0};
  for (int step = 0; step < 50; ++step) CHECK(alone.note(1, silent).empty());
}

TEST_CASE("how slow a node is follows its newest steps", "[actors]") {
  SlowNodes nodes;
  CHECK(note(nodes, 30, {1, 1, 1, 1}).empty());
  CHECK(nodes.times().empty());
  note(nodes, 20, {1, 1, 3, 1});
  CHECK((nodes.times() == std::map<NodeId, double>{{NodeId{2}, 3}}));
  CHECK(note(nodes, 20, {1, 1, 6, 1}).empty());  // It is named already.
  CHECK((nodes.times() == std::map<NodeId, double>{{NodeId{2}, 6}}));
  note(nodes, 12, {1, 1, 0.9, 1});  // Not long enough to be as fast as it was.
  CHECK((nodes.times() == std::map<NodeId, double>{{NodeId{2}, 1}}));
  note(nodes, 20, {1, 1, 1, 1});
  CHECK(nodes.times().empty());
}

TEST_CASE("who is slow stays so in another layout, until it is as fast as it was", "[actors]") {
  SlowNodes nodes;
  note(nodes, 30, {1, 1, 1, 1});
  note(nodes, 20, {1, 1, 4, 1});
  CHECK(note(nodes, 30, {1, 1, 4, 1}, 2).empty());
  CHECK((nodes.times() == std::map<NodeId, double>{{NodeId{2}, 4}}));
  CHECK(note(nodes, 5, {1, 1, 1, 1}, 3).empty());  // Of these alone nothing follows.
  CHECK((nodes.times() == std::map<NodeId, double>{{NodeId{2}, 4}}));
  CHECK((note(nodes, 20, {1, 1, 1, 1}, 3) == std::vector<SpeedChange>{{NodeId{2}, 1, false}}));
}

TEST_CASE("who comes in the place of a slow node is as fast as any", "[actors]") {
  SlowNodes nodes;
  note(nodes, 30, {1, 1, 1, 1});
  note(nodes, 20, {1, 1, 4, 1});
  nodes.forget(NodeId{2});
  CHECK(nodes.times().empty());
  CHECK(note(nodes, 30, {1, 1, 4, 1}).empty());  // What is usual of it is seen anew.
}

TEST_CASE("who comes with a speed of its own has it until steps show another one", "[actors]") {
  SlowNodes nodes;
  nodes.start(NodeId{2}, 2);
  using Times = std::map<NodeId, double>;
  CHECK(note(nodes, 19, {1, 1, 3, 1}).empty());
  CHECK((nodes.times() == Times{{NodeId{2}, 2}}));
  CHECK(note(nodes, 1, {1, 1, 3, 1}).empty());  // It was never faster: that is no slowing down.
  CHECK((nodes.times() == Times{{NodeId{2}, 3}}));
  note(nodes, 19, {1, 1, 1, 1}, 2);
  CHECK((nodes.times() == Times{{NodeId{2}, 3}}));
  note(nodes, 1, {1, 1, 1, 1}, 2);
  CHECK((nodes.times() == Times{{NodeId{2}, 1}}));
  nodes.forget(NodeId{2});
  CHECK(nodes.times().empty());
}

TEST_CASE("the speed of who comes is held against those that are as the profile has them",
          "[actors]") {
  SlowNodes nodes;
  for (const std::size_t node : {1u, 2u, 3u}) nodes.start(NodeId{node}, 1.5);
  CHECK(note(nodes, 20, {1, 2, 2, 0.5}).empty());
  using Times = std::map<NodeId, double>;
  CHECK((nodes.times() == Times{{NodeId{1}, 2}, {NodeId{2}, 2}, {NodeId{3}, 0.5}}));
  // Where all come so there is nothing to hold them against.
  SlowNodes all;
  for (const std::size_t node : {0u, 1u, 2u, 3u}) all.start(NodeId{node}, 1.5);
  note(all, 40, {1, 2, 2, 0.5});
  for (const auto& [node, times] : all.times()) CHECK(times == 1.5);
}

TEST_CASE("noise names nobody, and hides nobody who is three times as slow", "[actors][property]") {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937_64 random(seed);
    std::lognormal_distribution<double> noise(0, 0.25);
    SlowNodes nodes;
    const auto run = [&](int steps, double times) {
      std::vector<SpeedChange> all;
      for (int step = 0; step < steps; ++step)
        for (const auto& change : nodes.note(
                 1, paces({noise(random), noise(random), noise(random), times * noise(random)})))
          all.push_back(change);
      return all;
    };
    CHECK(run(500, 1).empty());
    const auto found = run(60, 3.5);
    REQUIRE(found.size() == 1);
    CHECK((found[0].node == NodeId{3} && found[0].is_slow));
  }
}

}  // namespace
}  // namespace troupe::actors
