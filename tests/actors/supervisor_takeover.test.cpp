// A head that has gathered nodes on which no layout works, though they have all of the model.

#include "tests/torch_catch.hpp"

#include "actors/supervisor/supervisor_takeover.hpp"

#include <algorithm>
#include <catch2/generators/catch_generators.hpp>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/actors/taking_over.hpp"
#include "tests/support/scratch_folder.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

/// Nodes 0, 1 and 2 come to the next head with all of the model after step 4. Node 3 was lost with
/// the head before, and alone sees a source of data. The job waits so long for nodes.
struct OneIsMissing {
  explicit OneIsMissing(double wait_s = 10, bool is_told = false)
      : taking([wait_s](job::Job& job) { job.recovery.wait_for_nodes_s = wait_s; }) {
    head.resources.logger =
        observe::Logger::create(nullptr, {"head", observe::LogLevel::info, scratch / "log"})
            .value();
    head.resources.setup.job.data.sources = {{"llava", "samples.json", "", {3}}};
    for (std::size_t id = 0; id < 3; ++id) {
      NodeHolding holding = taking.at_step(id, 4);
      if (id == 0 && is_told) holding.leaves = {{"told to end", true}};
      head.join_with(std::move(holding));
    }
  }

  std::string log() const {
    std::ifstream stream(scratch / "log");
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  /// Those that came have written the one save that they were told of.
  void save() {
    for (std::size_t id = 0; id < 3; ++id) {
      REQUIRE(head.seen[id].saves.size() == 1);
      const SaveOrder& order = head.seen[id].saves[0];
      CHECK(order.step == 4);
      if (order.shards.empty()) continue;
      SaveReport report{order.number, {NodeId{id}, 0}, true};
      report.file = "state-" + std::to_string(id);
      report.sha256 = "ab";
      head.tell(report);
    }
    REQUIRE(head.keeper.written.size() == 1);
    CHECK(head.keeper.written[0].manifest.missing.empty());
    KeptCheckpoint kept;
    kept.number = head.keeper.written[0].number;
    head.tell(std::make_shared<const KeptCheckpoint>(kept));
  }

  testing::ScratchFolder scratch;
  TakingOver taking;
  Head& head = taking.head;
};

// Window: nobody left sees a source of data, or no layout fits them
TEST_CASE("a new head with nodes on which no layout works waits for others, and goes on with them",
          "[actors][takeover][recovery]") {
  OneIsMissing job;
  Head& head = job.head;
  job.taking.pass(6s);
  CHECK_FALSE(head.ended);
  REQUIRE(job.taking.opened.size() == 1);
  REQUIRE(job.taking.opened[0]);
  CHECK(job.taking.opened[0]->step == 4);
  // One of its own would be started anew.
  REQUIRE(job.taking.started.size() == 1);
  CHECK((job.taking.started[0] == std::set<NodeId>{NodeId{0}, NodeId{1}, NodeId{2}}));
  CHECK(says(job.log(),
             "the head was lost; another one, process 9 on host, gathered its nodes; missing: node "
             "3; no layout works on the 3 nodes that are left, though all state is there: no node "
             "of the layout sees data.sources[0]"));
  CHECK(says(job.log(), "; 4, as before, are enough; the job waits 10 s"));
  CHECK(says(head.ask({ControlRequest::Kind::status, {}}), "waiting for more nodes"));
  job.save();
  head.pass(5s, {0, 1, 2});
  for (std::size_t id = 0; id < 3; ++id) {
    CHECK(head.seen[id].configurations.empty());
    CHECK(head.seen[id].stops.empty());
  }
  REQUIRE(head.join("host", 3) == "3");
  head.ready(3);
  head.pass(1s, {0, 1, 2, 3});
  REQUIRE(head.seen[0].configurations.size() == 1);
  CHECK(head.seen[0].configurations[0].plan.nodes().contains(NodeId{3}));
  REQUIRE(head.seen[3].configurations.size() == 1);
  CHECK_FALSE(head.seen[3].configurations[0].moves.empty());
  head.bring_up(2);
  CHECK(head.scheduler.next == std::vector<std::int64_t>{4});
  head.plan(4);
  for (std::size_t device = 0; device < 4; ++device) head.prepared(device, 5, 1, 1, 2);
  for (std::size_t device = 0; device < 4; ++device) head.finished(device, 5, 2);
  CHECK(head.recorder.steps.size() == 1);
  std::vector<std::string> kinds;
  for (const auto& event : head.recorder.events)
    if (event.kind != "checkpoint") kinds.push_back(event.kind);
  CHECK((kinds == std::vector<std::string>{"head-lost", "joined"}));
  head.pass(12s, {0, 1, 2, 3});
  CHECK_FALSE(head.ended);  // Nobody is waited for any more.
}

// Window: nobody left sees a source of data, or no layout fits them
TEST_CASE("a new head to whose nodes nobody comes ends once they have saved",
          "[actors][takeover][recovery]") {
  const bool waits = GENERATE(true, false);
  OneIsMissing job(waits ? 10 : 0);
  Head& head = job.head;
  job.taking.pass(6s);
  CHECK_FALSE(head.ended);
  job.save();
  if (waits) {
    job.taking.pass(8s);
    CHECK_FALSE(head.ended);
    job.taking.pass(2600ms);
  }
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(head.ended->exit_code == kResumable);
  CHECK(says(head.ended->message, "missing: node 3; no layout works on the 3 nodes"));
  CHECK(says(head.ended->message, "4, as before, are enough; not enough came within "));
  CHECK(says(head.ended->message, "step 4 is saved: the same command goes on from there"));
  for (std::size_t id = 0; id < 3; ++id)
    CHECK(head.seen[id].exit_codes == std::vector<std::int32_t>{kResumable});
  const auto lost = std::ranges::find(head.recorder.events, "head-lost", &observe::RunEvent::kind);
  REQUIRE(lost != head.recorder.events.end());
  CHECK((lost->nodes == std::vector<NodeId>{NodeId{3}}));
}

TEST_CASE("who begins while nodes are gathered gets a place though no layout works on them yet",
          "[actors][takeover][recovery]") {
  OneIsMissing job;
  Head& head = job.head;
  CHECK(head.join("new", 3).empty());  // No answer yet.
  job.taking.pass(6s);
  CHECK_FALSE(head.ended);
  CHECK(head.seen[3].alive > 0);
}

TEST_CASE("a new head that waits for nodes saves and ends where a signal ends one of those it has",
          "[actors][takeover][recovery]") {
  const bool is_told = true;
  OneIsMissing job(10, is_told);
  Head& head = job.head;
  job.taking.pass(7s);
  CHECK_FALSE(head.ended);
  job.save();
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(head.ended->exit_code == kResumable);
  CHECK(says(head.ended->message, "told to end at node 0"));
  CHECK(says(head.ended->message, "step 4 is saved: the same command goes on from there"));
}

TEST_CASE(
    "a new head on whose nodes no layout works though none is missing leaves them their state",
    "[actors][takeover][errors]") {
  TakingOver taking;
  Head& head = taking.head;
  head.resources.setup.job.data.sources = {{"llava", "samples.json", "", {7}}};
  for (std::size_t id = 0; id < 4; ++id) head.join_with(taking.at_step(id, 4));
  taking.pass(1s);
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(says(head.ended->message, "no node of the layout sees data.sources[0]"));
  CHECK(head.ended->exit_code == 2);  // It would come to that again.
  CHECK(taking.opened.empty());
  for (const NodeSeen& node : head.seen) CHECK(node.stops.empty());
}

}  // namespace
}  // namespace troupe::actors
