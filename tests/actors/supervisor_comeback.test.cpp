// Jobs that begin again, with few nodes, or with spare ones.

#include <catch2/generators/catch_generators.hpp>

#include "runtime/observe/job_status.hpp"
#include "tests/actors/head_fixture.hpp"
#include "tests/actors/template_set.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

/// A job that goes on from step 5, whose nodes are the only ones to have what they have.
struct Resumed {
  explicit Resumed(std::int32_t tries = 0, const std::function<void(job::Job&)>& edit = {},
                   const std::string& why = "")
      : head(
            9,
            [&](job::Job& job) {
              one_pipeline(job);
              if (edit) edit(job);
            },
            at_step_5(why), [tries](Head& it) { it.resources.tries = tries; }) {
    head.start_training();
  }

  static engine::ResumePoint at_step_5(const std::string& why) {
    engine::ResumePoint resume;
    resume.folder = "/run/checkpoints/step-5";
    resume.progress.step = 5;
    resume.why = why;
    return resume;
  }

  void lose(std::size_t node) {
    head.lose(node);
    head.system.pass(400ms);
  }

  Head head;
};

// Window: nobody holds a shard any more
TEST_CASE("a job that loses a last copy begins again from its checkpoint", "[actors][comeback]") {
  Resumed resumed;
  Head& head = resumed.head;
  resumed.lose(1);
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == kResumable);
  CHECK(head.ended->again == 1);
  CHECK(says(head.ended->message, "no other node has llm."));
  CHECK(says(head.ended->message, "step 5 is saved: the job begins again from there"));
  for (const std::size_t id : {0u, 2u, 3u}) {
    CHECK(head.seen[id].restarts.size() == 1);
    CHECK(head.seen[id].stops.empty());
  }
}

// Window: nobody holds a shard any more
TEST_CASE("a job that a device costs a last copy begins again from its checkpoint",
          "[actors][comeback]") {
  Resumed resumed;
  Head& head = resumed.head;
  engine::FailedWork failed{0, 1};
  failed.error = {Errc::internal, "CUDA error: uncorrectable ECC error", {}, "look at it"};
  failed.by_device = true;
  head.tell(NodeId{1}, failed);
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(head.ended->exit_code == kResumable);
  CHECK(head.ended->again == 1);
  CHECK(says(head.ended->message, "node 1 (host, pid 101) was lost: CUDA error: uncorrectable"));
  CHECK(says(head.ended->message, "step 5 is saved: the job begins again from there"));
  for (const std::size_t id : {0u, 2u, 3u}) CHECK(head.seen[id].restarts.size() == 1);
  CHECK(head.seen[1].restarts.empty());
  CHECK(head.seen[1].exit_codes == std::vector<std::int32_t>{1});
}

TEST_CASE("a job begins again from one checkpoint three times", "[actors][comeback]") {
  {
    Resumed third(2);
    third.lose(1);
    REQUIRE(third.head.ended);
    CHECK(third.head.ended->again == 3);
  }
  Resumed last(3);
  last.lose(1);
  REQUIRE(last.head.ended);
  CHECK(last.head.ended->exit_code == kResumable);
  CHECK(last.head.ended->again == 0);
  CHECK(says(last.head.ended->message, "the same command goes on from there"));
  CHECK(last.head.seen[0].exit_codes == std::vector{kResumable});
}

TEST_CASE("a job that is not to begin again ends with what the same command needs",
          "[actors][comeback]") {
  Resumed resumed(0, [](job::Job& job) { job.recovery.from_checkpoint = false; });
  resumed.lose(1);
  REQUIRE(resumed.head.ended);
  CHECK(resumed.head.ended->exit_code == kResumable);
  CHECK(resumed.head.ended->again == 0);
}

TEST_CASE("a job that is told to end does not begin again", "[actors][comeback]") {
  Resumed resumed;
  resumed.head.plan(5);
  resumed.head.tell(stop_atom::value, static_cast<std::int32_t>(15));
  resumed.lose(1);
  REQUIRE(resumed.head.ended);
  CHECK(resumed.head.ended->again == 0);
}

TEST_CASE("who joins while the job begins again is sent to the next head", "[actors][comeback]") {
  Resumed resumed;
  Head& head = resumed.head;
  for (auto& node : head.seen) node.deaf = true;
  resumed.lose(1);
  REQUIRE_FALSE(head.ended);
  CHECK(head.join("late") == "the job begins again");
  CHECK(head.refusal.fix.empty());
}

TEST_CASE("the event of a job that began again says why", "[actors][comeback]") {
  Resumed resumed(1, {}, "node 1 was lost");
  REQUIRE(resumed.head.recorder.events.size() == 1);
  CHECK(resumed.head.recorder.events[0].why == "node 1 was lost; from /run/checkpoints/step-5");
}

TEST_CASE("a job that begins again waits longer for its nodes", "[actors][comeback]") {
  for (const std::int32_t tries : {0, 1}) {
    Head head(
        9, [](job::Job& job) { job.recovery.wait_for_nodes_s = 10; }, Resumed::at_step_5(""),
        [=](Head& it) { it.resources.tries = tries; });
    head.system.pass(5s);
    CHECK(head.ended.has_value() == (tries == 0));
    head.system.pass(6s);
    CHECK(head.ended.has_value());
  }
}

// Window: not all nodes come to a start
TEST_CASE("a job begins with the nodes that come where these are enough", "[actors][comeback]") {
  const bool is_opening = GENERATE(false, true);  // One that has come has not opened its data.
  for (const std::int32_t enough : {0, 2, 3}) {
    Head head(9, [=](job::Job& job) { job.cluster.min_nodes = enough; });
    for (const std::int32_t id : {2, 3}) {
      head.join("host", id);
      head.ready(static_cast<std::size_t>(id));
    }
    if (is_opening) head.join("host", 1);
    CHECK(head.seen[2].configurations.empty());
    head.system.pass(3s);
    CHECK(head.ended.has_value() == (enough != 2));
    if (enough != 2) continue;
    REQUIRE(head.seen[2].configurations.size() == 1);
    const Configuration& first = head.seen[2].configurations[0];
    CHECK((first.plan.nodes() == std::set<NodeId>{NodeId{2}, NodeId{3}}));
    CHECK(first.epoch_number == 1);
    CHECK(first.nodes.size() == 3);  // And the head.
    REQUIRE(head.recorder.events.size() == 1);
    const observe::RunEvent& told = head.recorder.events[0];
    CHECK(told.kind == "began-without");
    CHECK((told.nodes == std::vector<NodeId>{NodeId{0}, NodeId{1}}));
    CHECK(told.generation == 1);
    CHECK(told.step == 1);
    CHECK(says(told.why, "nodes 0 and 1 did not come: the job begins without (cluster.min_nodes)"));
    CHECK(says(told.why, "; 2 of 4 nodes are there"));
    CHECK(says(told.why, "; still opening data and devices: node 1 (host, pid 102)") == is_opening);
    head.join("late", 0);
    head.ready(0);
    for (const std::size_t id : {2u, 3u})
      head.tell(fetched_atom::value, NodeId{id}, EpochNumber{1}, 0.0);
    CHECK_FALSE(head.ended);
  }
}

TEST_CASE("a loss for which no templates can be drawn goes on from what survives whole",
          "[actors][comeback][errors]") {
  Head head(9);
  head.resources.draw_templates = [](const ParallelPlan&) -> Result<scheduler::TemplateSet> {
    return Error{Errc::bad_data, "all samples are bad", {}, {}};
  };
  head.start_training();
  head.lose(1);
  CHECK_FALSE(head.ended);
  REQUIRE(head.seen[2].configurations.size() == 2);
  CHECK((head.seen[2].configurations[1].plan.nodes() == std::set<NodeId>{NodeId{2}, NodeId{3}}));
}

TEST_CASE("a job with too few nodes trains on, then saves and ends", "[actors][comeback]") {
  Head head(9, [](job::Job& job) {
    job.cluster.min_nodes = 4;
    job.recovery.wait_for_nodes_s = 10;
  });
  head.start_training();
  head.plan(0);
  head.run_step(1);
  head.lose(1);
  for (const std::size_t id : {0u, 2u, 3u})
    head.tell(fetched_atom::value, NodeId{id}, EpochNumber{2}, 0.0);
  for (const std::size_t id : {0u, 2u, 3u})
    head.tell(applied_atom::value, NodeId{id}, EpochNumber{2});
  head.pass(9s, {0, 2, 3});
  CHECK_FALSE(head.ended);
  CHECK(head.seen[2].saves.empty());
  head.pass(2s, {0, 2, 3});
  CHECK(head.seen[2].saves.size() == 1);
}

/// So many whole pipelines, on nodes 0, 1 ...; the other nodes are spare.
void pipelines_and_spares(job::Job& job, std::int32_t pipelines) {
  job.cluster.nodes = 4;
  job.cluster.spares = 4 - pipelines;
  job.parallel.layout.pipelines.clear();
  for (std::int32_t node = 0; node < pipelines; ++node)
    job.parallel.layout.pipelines.push_back({{node, 0, {{"vision", {}}, {"llm", {}}}}});
}

std::set<NodeId> standing_by(const Configuration& configuration) {
  std::set<NodeId> nodes;
  for (const Standby& standby : configuration.plan.standbys)
    nodes.insert(configuration.plan.devices[standby.device.index()].node);
  return nodes;
}

TEST_CASE("a spare node stands by, and works once another one is lost", "[actors][comeback]") {
  Head head(9, [](job::Job& job) { pipelines_and_spares(job, 3); });
  head.start_training();
  head.tell(templates_of(head.resources.setup));
  CHECK((standing_by(head.seen[3].configurations.at(0)) == std::set<NodeId>{NodeId{3}}));
  const auto told = [&] { return observe::read_status(head.ask({})).value(); };
  CHECK(told().nodes[0].state == "working");
  CHECK(told().nodes[3].state == "spare");
  CHECK(told().nodes[3].standby_layers == told().layers);
  CHECK(told().layers > 0);
  head.resources.setup.job.cluster.spares = 0;  // As a holder that was added for the promise.
  CHECK(told().nodes[3].state == "standing by");
  head.resources.setup.job.cluster.spares = 1;
  head.plan(0);
  head.lose(1);
  REQUIRE(head.seen[3].configurations.size() == 2);
  CHECK((head.seen[3].configurations[1].plan.nodes() ==
         std::set<NodeId>{NodeId{0}, NodeId{2}, NodeId{3}}));
  CHECK(standing_by(head.seen[3].configurations[1]).empty());
  CHECK(head.seen[3].configurations[1].moves.empty());  // It has everything.
  for (const std::size_t id : {0u, 2u, 3u})
    head.tell(fetched_atom::value, NodeId{id}, EpochNumber{2}, 0.0);
  for (const std::size_t id : {0u, 2u, 3u})
    head.tell(applied_atom::value, NodeId{id}, EpochNumber{2});
  // Who comes after that is the next spare one.
  head.plan(0);
  head.join("host", 1);
  head.ready(1);
  for (std::size_t device = 0; device < 3; ++device) head.prepared(device, 1, 1, 1, 2);
  for (std::size_t device = 0; device < 3; ++device) head.finished(device, 1, 2);
  CHECK(head.recorder.steps.size() == 1);
  REQUIRE(head.seen[0].configurations.size() == 3);
  CHECK((standing_by(head.seen[0].configurations[2]) == std::set<NodeId>{NodeId{1}}));
}

TEST_CASE("copies of a spare node come behind a loss, which does not wait for them",
          "[actors][comeback]") {
  Head head(9, [](job::Job& job) { pipelines_and_spares(job, 2); });
  const auto bring_up = [&](EpochNumber epoch, const std::vector<std::size_t>& nodes) {
    for (const std::size_t id : nodes) head.tell(fetched_atom::value, NodeId{id}, epoch, 0.0);
    for (const std::size_t id : nodes) head.tell(applied_atom::value, NodeId{id}, epoch);
  };
  head.start_training();
  head.tell(templates_of(head.resources.setup));
  head.lose(3);
  bring_up(2, {0, 1, 2});
  head.plan(0);
  head.join("host", 3);
  head.ready(3);
  head.lose(1);
  REQUIRE(head.seen[0].configurations.size() == 3);
  CHECK((head.seen[0].configurations[2].plan.nodes() == std::set<NodeId>{NodeId{0}, NodeId{2}}));
  bring_up(3, {0, 2, 3});
  REQUIRE(head.seen[0].configurations.size() == 4);
  CHECK((standing_by(head.seen[0].configurations[3]) == std::set<NodeId>{NodeId{3}}));
}

TEST_CASE("a spare node that stands by for the promise alone gets the rest behind a loss",
          "[actors][comeback]") {
  Head head(9, [](job::Job& job) {
    job.cluster.nodes = 4;
    job.cluster.spares = 2;
    job.cluster.fault_tolerance = 1;
    job.parallel.layout.pipelines = {
        {{0, 0, {{"vision", {}}, {"llm", LayerRange{0, 2}}}}, {1, 0, {{"llm", LayerRange{2, 4}}}}}};
  });
  const auto bring_up = [&](EpochNumber epoch, const std::vector<std::size_t>& nodes) {
    for (const std::size_t id : nodes) head.tell(fetched_atom::value, NodeId{id}, epoch, 0.0);
    for (const std::size_t id : nodes) head.tell(applied_atom::value, NodeId{id}, epoch);
  };
  const auto kept_by_3 = [&] {
    std::size_t kept = 0;
    const ParallelPlan& plan = head.seen[0].configurations.back().plan;
    for (const Standby& standby : plan.standbys)
      if (plan.devices[standby.device.index()].node == NodeId{3}) ++kept;
    return kept;
  };
  head.start_training();
  const std::size_t all = kept_by_3();
  head.tell(templates_of(head.resources.setup, 4));  // A pipeline needs two nodes.
  head.lose(3);
  bring_up(2, {0, 1, 2});
  head.plan(0);
  head.join("host", 3);
  head.ready(3);
  head.lose(1);
  REQUIRE(head.seen[0].configurations.size() == 3);
  CHECK(kept_by_3() > 0);
  CHECK(kept_by_3() < all);
  bring_up(3, {0, 2, 3});
  REQUIRE(head.seen[0].configurations.size() == 4);
  CHECK(kept_by_3() == all);
}

}  // namespace
}  // namespace troupe::actors
