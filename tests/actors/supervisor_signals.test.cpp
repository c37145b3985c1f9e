// What a signal to nodes' processes means to their job.

#include "actors/supervisor/supervisor_members.hpp"

#include <catch2/generators/catch_generators.hpp>

#include "tests/actors/members_fixture.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

/// A node says that its process was told to end.
void signal(Head& head, std::size_t node) {
  head.tell(failed_atom::value, NodeId{node}, Error{Errc::cancelled, "stopped by SIGTERM", "", ""});
}

TEST_CASE("a signal to one node drains it, to most it ends the job", "[actors][members]") {
  Members members;
  Head& head = members.head;
  head.plan(0);
  SECTION("one") {
    signal(head, 1);
    head.pass(600ms, {0, 1, 2, 3});
    members.run_step(1, 1);
    CHECK_FALSE(head.seen[0].configurations.back().plan.nodes().contains(NodeId{1}));
    CHECK((head.seen[1].leaves == std::vector<std::string>{"stopped by SIGTERM"}));
    CHECK_FALSE(head.ended);
  }
  SECTION("two of four, in turn") {
    signal(head, 1);
    head.pass(600ms, {0, 1, 2, 3});
    signal(head, 0);
    head.pass(600ms, {0, 1, 2, 3});
    members.run_step(1, 1);
    CHECK((head.seen[2].configurations.back().plan.nodes() ==
           std::set<NodeId>{NodeId{2}, NodeId{3}}));
  }
  SECTION("three of four") {
    for (const std::size_t node : {1u, 2u, 3u}) signal(head, node);
    head.pass(600ms, {0, 1, 2, 3});
    head.leave({0, 1, 2, 3});
    REQUIRE(head.ended);
    CHECK(says(head.ended->message, "stopped by SIGTERM"));
    CHECK(head.seen[1].leaves.empty());  // It ends with the job, and has no more time than that.
  }
  SECTION("three of four, within half a second") {
    for (const std::size_t node : {1u, 2u, 3u}) {
      signal(head, node);
      head.pass(200ms, {0, 1, 2, 3});
    }
    head.leave({0, 1, 2, 3});
    REQUIRE(head.ended);
    CHECK(says(head.ended->message, "stopped by SIGTERM"));
    for (const NodeSeen& node : head.seen) CHECK(node.leaves.empty());
  }
}

TEST_CASE("a signal to the head means the job, also where a node was told just before or behind",
          "[actors][members]") {
  constexpr std::int32_t kTerm = 15;
  Members members;
  Head& head = members.head;
  head.plan(0);
  members.run_step(1, 1);
  const bool is_before = GENERATE(true, false);
  if (is_before) signal(head, 1);
  head.tell(stop_atom::value, kTerm);
  if (!is_before) signal(head, 1);
  head.pass(600ms, {0, 1, 2, 3});
  for (const NodeSeen& node : head.seen) {
    CHECK(node.saves.size() == 1);
    CHECK(node.leaves.empty());
  }
  head.tell(stop_atom::value, kTerm);  // Nobody waits for what is being saved.
  head.leave({0, 1, 2, 3});
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 128 + kTerm);
  CHECK_FALSE(says(head.ended->message, "at node"));
}

TEST_CASE("a signal to one node frees its place before the job begins", "[actors][members]") {
  Head head;
  head.join("host0");
  SECTION("the only one there, which has not opened its data") {
    signal(head, 0);
    head.pass(600ms, {0});
    CHECK_FALSE(head.ended);
    CHECK((head.seen[0].exit_codes == std::vector<std::int32_t>{0}));
    CHECK(head.join("another") == "0");
  }
  SECTION("one of three") {
    for (const char* host : {"host1", "host2"}) head.join(host);
    for (const std::size_t id : {0u, 1u, 2u}) head.ready(id);
    signal(head, 1);
    head.pass(600ms, {0, 1, 2});
    CHECK_FALSE(head.ended);
    CHECK((head.seen[1].exit_codes == std::vector<std::int32_t>{0}));
    CHECK(head.join("another") == "1");
    head.ready(1);
    head.join("host3");
    head.ready(3);
    CHECK(head.seen[0].configurations.size() == 1);  // It has begun.
  }
  SECTION("two of three mean the job") {
    for (const char* host : {"host1", "host2"}) head.join(host);
    for (const std::size_t id : {1u, 2u}) signal(head, id);
    head.pass(600ms, {0, 1, 2});
    head.leave({0, 1, 2});
    REQUIRE(head.ended);
    CHECK(head.ended->exit_code == 1);
    CHECK(says(head.ended->message, "stopped by SIGTERM at node 1 (host1, pid 101)"));
  }
}

TEST_CASE("a signal to a node of the head's own before the job begins ends it",
          "[actors][members]") {
  Head head(2, [](job::Job& job) { job.cluster.local_nodes = 2; });
  for (const std::int32_t id : {0, 1}) head.join("host" + std::to_string(id), id);
  signal(head, 1);
  head.leave({0, 1});
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 1);
  CHECK(says(head.ended->message, "stopped by SIGTERM at node 1 (host1, pid 101)"));
}

TEST_CASE("a signal to one node at the end of a job lets it leave with the job",
          "[actors][members]") {
  const bool is_needed = GENERATE(false, true);
  using Edit = std::function<void(job::Job&)>;
  Members members(is_needed ? Edit(one_pipeline) : Edit(), 1);
  Head& head = members.head;
  head.recorder.busy = true;
  head.plan(0);
  const bool is_offered = GENERATE(false, true);
  const auto finish = [&] {
    members.run_step(1, 1);
    for (std::size_t id = 0; id < 4; ++id) head.tell(Offers{NodeId{id}, 1, {}});
  };
  if (is_offered) finish();
  signal(head, 1);
  head.pass(600ms, {0, 1, 2, 3});
  CHECK(head.seen[0].stops.empty());
  CHECK((head.seen[1].leaves == std::vector<std::string>{"stopped by SIGTERM"}));
  CHECK(says(members.log(), "the job is all but done, and the node leaves with it"));
  CHECK(says(members.log(), "until then it cannot be done without") == is_needed);
  if (!is_offered) finish();
  REQUIRE(head.recorder.collections.size() == 1);
  caf::anon_send(head.actors.recorder, begin_atom::value, Configuration{});  // All have come.
  head.leave({0, 1, 2, 3});
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 0);
}

// Window: a silent node comes back
TEST_CASE("who was lost and wakes says nothing for the process that has its place by then",
          "[actors][members]") {
  Members members([](job::Job& job) { job.cluster.heartbeat_timeout_s = 2; });
  Head& head = members.head;
  head.seen[1].deaf = true;  // It sleeps, and hears nothing.
  const NodeActor sleeper = head.nodes[1];
  head.plan(0);
  head.pass(600ms, {0, 1, 2, 3});
  head.pass(3s, {0, 2, 3});
  REQUIRE(head.seen[1].stops.size() == 1);
  members.bring_up(2, {0, 2, 3});
  REQUIRE(head.join("another") == "1");
  // It had opened its data when it fell asleep. Nothing answers at this address.
  caf::send_as(sleeper, head.actor, NodeReady{NodeId{1}, {9}, {60, 7}});
  head.system.run();
  CHECK(head.seen[1].refusals.empty());
  head.ready(1);
  // Who stops a process that sleeps wakes it for that.
  caf::send_as(sleeper, head.actor, failed_atom::value, NodeId{1},
               Error{Errc::cancelled, "stopped by SIGTERM", {}, {}});
  head.pass(800ms, {0, 1, 2, 3});
  CHECK(head.seen[1].leaves.empty());
  for (int i = 0; i < 15; ++i) {
    caf::send_as(sleeper, head.actor, alive_atom::value, NodeId{1});
    head.pass(200ms, {0, 2, 3});
  }
  CHECK(head.seen[1].stops.size() == 2);  // The other one is silent.
  CHECK_FALSE(head.ended);
}

/// Without node 3 each of nodes 1 and 2 trades most of its layers for others: either half has room
/// on a device, and what comes has none beside what goes.
void trading_places(job::Job& job) {
  job.modules[2].config = models::LlmConfig{.num_hidden_layers = 6,
                                            .hidden_size = 16,
                                            .intermediate_size = 1200,
                                            .num_attention_heads = 2,
                                            .num_key_value_heads = 1};
  job.parallel.layout.pipelines = {{{0, 0, {{"vision", {}}}},
                                    {1, 0, {{"llm", LayerRange{0, 3}}}},
                                    {2, 0, {{"llm", LayerRange{3, 6}}}},
                                    {3, 0, {{"llm", LayerRange{6, 8}}}}}};
  no_room_beside(job);
  job.cluster.device_memory_gib *= 1.05;  // The embedding comes to three layers.
}

TEST_CASE("for want of room beside its layout a job keeps who is asked to leave, not who ends",
          "[actors][members]") {
  Members members(trading_places);
  Head& head = members.head;
  head.plan(0);
  const bool is_told = GENERATE(true, false);
  if (is_told) {
    signal(head, 3);
    head.pass(600ms, {0, 1, 2, 3});
    CHECK(says(members.log(),
               "memory may not do while its next layout comes up: parameters, gradients and "
               "optimizer of device 0 of node 2 take"));
  } else {
    const std::string said = members.ask(ControlRequest::Kind::drain, 3);
    CHECK(said.starts_with("no: "));
    CHECK(says(said, "parameters, gradients and optimizer of device 0 of node 2 take"));
  }
  CHECK(head.seen[3].leaves.size() == (is_told ? 1 : 0));
  members.run_step(1, 1);
  CHECK_FALSE(head.ended);
  CHECK(head.seen[0].configurations.size() == (is_told ? 2 : 1));
  CHECK(head.seen[0].configurations.back().plan.nodes().contains(NodeId{3}) != is_told);
}

}  // namespace
}  // namespace troupe::actors
