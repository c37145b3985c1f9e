// A head that gathers the nodes of a lost one, and to which no way for tensors leads from some.

#include "tests/torch_catch.hpp"

#include "actors/supervisor/supervisor_gather.hpp"

#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/actors/taking_over.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/transport/forwarding_transport.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

/// Of a head to which no way leads from these nodes.
class CutOff final : public transport::testing::ForwardingTransport {
 public:
  CutOff(std::unique_ptr<transport::Transport> inner, std::set<transport::Peer> unreached)
      : ForwardingTransport(std::move(inner)), unreached_(std::move(unreached)) {}

  Status connect(transport::Peer peer, std::span<const std::byte> address) override {
    if (unreached_.contains(peer))
      return Error{Errc::transport_failed, "no way leads there", {}, {}};
    return ForwardingTransport::connect(peer, address);
  }

 private:
  std::set<transport::Peer> unreached_;
};

/// All four nodes come to a head that does not reach these, after step 4.
void gather(TakingOver& taking, std::set<transport::Peer> unreached) {
  Head& head = taking.head;
  head.resources.transport =
      std::make_unique<CutOff>(std::move(head.resources.transport), std::move(unreached));
  for (std::size_t id = 0; id < 4; ++id) head.join_with(taking.at_step(id, 4));
  taking.pass(1s);
}

/// The head has ended so that it can come again, and all nodes look for another one, with what they
/// hold.
void check_left_alone(const TakingOver& taking) {
  CHECK(taking.head.ended->exit_code == kResumable);
  CHECK(taking.opened.empty());
  for (const NodeSeen& node : taking.head.seen) {
    CHECK(node.stops.empty());
    CHECK(node.restarts.empty());
  }
}

// Window: the next head does not reach a node
TEST_CASE("a new head goes on without a node that it does not reach", "[actors][takeover]") {
  TakingOver taking;
  Head& head = taking.head;
  gather(taking, {2});
  CHECK_FALSE(head.ended);
  REQUIRE(taking.opened.size() == 1);
  REQUIRE(taking.opened[0]);
  CHECK(taking.opened[0]->step == 4);
  CHECK((taking.started.at(0) == std::set<NodeId>{NodeId{0}, NodeId{1}, NodeId{3}}));
  CHECK((head.seen[2].restarts ==
         std::vector<std::string>{
             "it cannot go on: the head does not reach it for tensors: no way leads there"}));
  CHECK(head.seen[2].configurations.empty());
  REQUIRE(head.seen[0].configurations.size() == 1);
  const Configuration& next = head.seen[0].configurations[0];
  CHECK((next.plan.nodes() == std::set<NodeId>{NodeId{0}, NodeId{1}}));
  for (const NodeReady& node : next.nodes) CHECK(node.node != NodeId{2});
  REQUIRE(head.recorder.begun.size() == 1);
  CHECK(head.recorder.begun[0].kind == "head-lost");
  CHECK((head.recorder.begun[0].nodes == std::vector<NodeId>{NodeId{2}}));
  CHECK(says(head.recorder.begun[0].why,
             "gathered its nodes; node 2 (host, pid 102) was lost: the head does not reach it for "
             "tensors: no way leads there"));
}

// Window: the next head does not reach a node
TEST_CASE("a new head leaves nodes their state where it cannot go on without those it misses",
          "[actors][takeover][errors]") {
  bool is_whole = false;
  SECTION("one holds what nobody else has") {}
  SECTION("no layout works without it") { is_whole = true; }
  TakingOver taking([&](job::Job& job) {
    if (!is_whole) one_pipeline(job);
  });
  Head& head = taking.head;
  if (is_whole) head.resources.setup.job.data.sources = {{"llava", "samples.json", "", {2}}};
  gather(taking, {2});
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(says(head.ended->message,
             "missing: node 2 (the head does not reach it for tensors: no way leads there)"));
  check_left_alone(taking);
}

// Window: the next head does not reach a node
TEST_CASE("a new head that reaches nobody leaves all of them to another one",
          "[actors][takeover][errors]") {
  TakingOver taking([](job::Job& job) { job.recovery.from_checkpoint = true; });
  Head& head = taking.head;
  head.resources.gather->goes_back = true;
  head.resources.gather->saved_step = 3;
  gather(taking, {0, 1, 2, 3});
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(says(head.ended->message,
             "the head reaches none of the nodes that wait for it for tensors: no way leads "
             "there; nodes of this run go on waiting for a head, with their state"));
  CHECK(says(head.ended->message, "node 0 (host, pid 100)"));
  check_left_alone(taking);
}

TEST_CASE("who did not finish in time is sent away once, also where another one is not reached",
          "[actors][takeover]") {
  const testing::ScratchFolder scratch;
  TakingOver taking;
  Head& head = taking.head;
  head.resources.logger =
      observe::Logger::create(nullptr, {"head", observe::LogLevel::info, scratch / "log"}).value();
  head.resources.transport =
      std::make_unique<CutOff>(std::move(head.resources.transport), std::set<transport::Peer>{0});
  for (std::size_t id = 0; id < 4; ++id) head.join_with(taking.at_step(id, id == 1 ? 3 : 4));
  taking.pass(4s);  // Node 1 has two of them for the step that it lacks.
  CHECK_FALSE(head.ended);
  for (const std::size_t id : {0u, 1u}) CHECK(head.seen[id].restarts.size() == 1);
  REQUIRE(head.seen[2].configurations.size() == 1);
  CHECK((head.seen[2].configurations[0].plan.nodes() == std::set<NodeId>{NodeId{2}, NodeId{3}}));
  std::ifstream stream(scratch / "log");
  const std::string log{std::istreambuf_iterator<char>(stream), {}};
  const auto told = log.find("cannot go on: it did not finish step 4 in time");
  REQUIRE(told != std::string::npos);
  CHECK(log.find("cannot go on: it did not finish step 4 in time", told + 1) == std::string::npos);
}

TEST_CASE("half a model without a node that is not reached is given up as any other",
          "[actors][takeover]") {
  TakingOver taking(one_pipeline);
  Head& head = taking.head;
  head.resources.gather->goes_back = true;
  head.resources.gather->saved_step = 3;
  gather(taking, {2});
  CHECK_FALSE(head.ended);
  REQUIRE(taking.opened.size() == 1);
  CHECK_FALSE(taking.opened[0]);  // From the checkpoint.
  for (const NodeSeen& node : head.seen) CHECK(node.restarts.size() == 1);
}

TEST_CASE("a head that only saves has a node save that it does not reach for tensors",
          "[actors][takeover]") {
  TakingOver taking(one_pipeline);
  Head& head = taking.head;
  head.resources.gather->ends = true;
  gather(taking, {2});
  CHECK_FALSE(head.ended);
  REQUIRE(taking.opened.size() == 1);
  for (const NodeSeen& node : head.seen) {
    CHECK(node.restarts.empty());
    CHECK(node.configurations.empty());  // No layout comes up for that.
    REQUIRE(node.saves.size() == 1);
    CHECK(node.saves[0].step == 4);
    CHECK_FALSE(node.saves[0].shards.empty());
  }
}

}  // namespace
}  // namespace troupe::actors
