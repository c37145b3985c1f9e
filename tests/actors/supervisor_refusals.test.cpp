#include "actors/supervisor/supervisor_members.hpp"

#include <catch2/generators/catch_generators.hpp>

#include "tests/actors/members_fixture.hpp"

namespace troupe::actors {
namespace {

TEST_CASE("a node with another build of a plug-in ends the job before it starts",
          "[actors][members][errors]") {
  Head head;
  head.resources.plugins = {{"mine.so", 0x0123'4567'89ab'cdef}};
  for (const char* host : {"zero", "one", "two", "three"}) head.join(host);
  head.ready(0, {60, 7}, {{"copy.so", 0x0123'4567'89ab'cdef}});
  head.ready(1);  // None: what it cannot do without, it asks for itself.
  CHECK_FALSE(head.ended);
  head.ready(2, {61, 7}, {{"mine.so", 0xfedc'ba98'7654'3210}});  // With a format that reads more.
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 2);
  CHECK(says(head.ended->message,
             "node 2 (two, pid 102) has another build of plug-in mine.so: its hash is fedcba98, "
             "the head's 01234567"));
  CHECK(says(head.ended->message, "copy one build to every machine"));
  REQUIRE(head.seen[2].refusals.size() == 1);  // It prints all of that, the others one line.
  CHECK(to_string(head.seen[2].refusals[0]) == head.ended->message);
  CHECK(head.seen[1].refusals.empty());
  CHECK((head.seen[1].stops == std::vector<std::string>{head.ended->message}));
}

TEST_CASE("a node of the head's own leaves it to the head to say why it does not fit",
          "[actors][members][errors]") {
  Head head(2, [](job::Job& job) { job.cluster.local_nodes = 2; });
  head.join("here", 1);
  head.ready(1, {60, 7}, {{"mine.so", 1}});
  REQUIRE(head.ended);
  CHECK(head.seen[1].refusals.empty());
  CHECK((head.seen[1].stops == std::vector<std::string>{head.ended->message}));
}

TEST_CASE("a place that a node of the head's own is about to take is for nobody else",
          "[actors][errors]") {
  Head head(2, [](job::Job& job) { job.cluster.local_nodes = 2; });
  const auto by_hand = [&head](std::int32_t wanted) {
    return head.join(NodeHello{"far", 7, wanted, "1.0 (abc)"});
  };
  CHECK(by_hand(1) ==
        "node 1 is one of those that the head starts itself (cluster.local_nodes = 2)");
  CHECK(exit_code(head.refusal) == 2);  // Another try does not help.
  CHECK(head.refusal.where == "--node");
  CHECK(says(head.refusal.fix, "leave --node out, or take a free id from 2 to 3"));
  CHECK(head.join("here", 1) == "1");
  CHECK(by_hand(1) == "node 1 has joined already");
  CHECK(by_hand(2) == "2");
  CHECK(by_hand(4) == "node 4 does not exist");
  head.resources.setup.job.cluster.local_nodes = 4;
  CHECK(says(by_hand(0), "(cluster.local_nodes = 4)"));
  CHECK(says(head.refusal.fix, "raise cluster.nodes"));
  CHECK_FALSE(head.ended);
}

TEST_CASE("a node that lacks a kind of stage ends the job before it starts",
          "[actors][members][errors]") {
  Head head;
  head.resources.stage_kinds = {"sentry"};
  head.join("zero");
  head.ready(0);
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 2);
  CHECK(says(head.ended->message, "node 0 (zero, pid 100) has no stage kind 'sentry'"));
}

TEST_CASE("a job does not begin on a node that has no room for its part",
          "[actors][members][errors]") {
  const std::int64_t bytes = GENERATE(1000, 1'000'000'000);
  Head head;
  for (const char* host : {"zero", "one", "two", "three"}) head.join(host);
  for (const std::size_t id : {0u, 1u, 3u}) head.ready(id);
  head.ready(2, {60, 7}, {}, bytes);
  CHECK(head.ended.has_value() == (bytes == 1000));
  CHECK(head.seen[0].configurations.empty() == (bytes == 1000));
  if (!head.ended) return;
  CHECK(says(head.ended->message, "of node 2 take"));
}

TEST_CASE("nodes that somebody started on one machine share its memory",
          "[actors][members][errors]") {
  const std::string host = GENERATE("two", "three");
  // Each of nodes 2 and 3 has room for its part in all of the memory, not in half of it.
  const std::int64_t bytes = [] {
    job::Job job = engine::tiny_job();
    job.cluster.local_nodes = 0;
    const auto plan = engine::make_parallel_plan(engine::prepare(job).value()).value();
    engine::DeviceRooms rooms{Bytes{1'000'000'000}};
    std::int64_t room = 1000;
    for (; !engine::check_state_memory(job, plan, rooms).ok() || room == 1000; room += 1000)
      rooms.own[NodeId{2}] = rooms.own[NodeId{3}] = Bytes{room};
    return room;
  }();
  Head head;
  for (const char* other : {"zero", "one", "two"}) head.join(other);
  head.join(host);
  for (const std::size_t id : {0u, 1u}) head.ready(id);
  for (const std::size_t id : {2u, 3u}) head.ready(id, {60, 7}, {}, bytes);
  CHECK(head.ended.has_value() == (host == "two"));
}

TEST_CASE("a newcomer gets no more than it says that it has room for", "[actors][members]") {
  const std::int64_t bytes = GENERATE(1000, 1'000'000'000);
  Members members;
  Head& head = members.head;
  members.begin_to_replace_one();
  head.ready(1, {60, 7}, {}, bytes);
  members.run_step(1, 2);
  CHECK(head.seen[0].configurations.back().plan.nodes().contains(NodeId{1}) == (bytes > 1000));
  CHECK(says(members.log(), "node 1 (another, pid 104) has 1 MB for each of its devices") ==
        (bytes == 1000));
  CHECK_FALSE(head.ended);
}

TEST_CASE("a newcomer that does not fit hears why, with the fix and its exit code",
          "[actors][members][errors]") {
  const bool has_other_data = GENERATE(true, false);
  Members members;
  Head& head = members.head;
  head.plan(0);
  members.lose(1);
  members.bring_up(2, {0, 2, 3});
  head.join("another");
  const std::size_t stops = head.seen[1].stops.size();
  if (has_other_data)
    head.ready(1, {61, 7});
  else
    head.ready(1, {60, 7}, {{"mine.so", 1}});
  REQUIRE(head.seen[1].refusals.size() == 1);
  const Error& why = head.seen[1].refusals[0];
  CHECK(exit_code(why) == (has_other_data ? 3 : 2));
  CHECK(says(why.message, has_other_data ? "has other data" : "has plug-in mine.so"));
  CHECK(says(why.fix, has_other_data ? "give every node the same" : "the same plug-ins"));
  CHECK(head.seen[1].stops.size() == stops);  // It has ended by then.
  CHECK_FALSE(head.ended);
}

TEST_CASE("who comes in the place of a node of the head's own hears why it does not fit",
          "[actors][members][errors]") {
  Members members;
  Head& head = members.head;
  head.resources.setup.job.cluster.local_nodes = 2;
  head.plan(0);
  members.lose(1);
  members.bring_up(2, {0, 2, 3});
  REQUIRE(head.join("another") == "1");  // It has a terminal of its own.
  head.ready(1, {60, 7}, {{"mine.so", 1}});
  REQUIRE(head.seen[1].refusals.size() == 1);
  CHECK(says(head.seen[1].refusals[0].message, "has plug-in mine.so"));
  CHECK(says(head.seen[1].refusals[0].fix, "the same plug-ins"));
  CHECK_FALSE(head.ended);
}

}  // namespace
}  // namespace troupe::actors
