#include "actors/supervisor/supervisor_gather.hpp"

#include <algorithm>
#include <catch2/generators/catch_generators.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/state/state_moves.hpp"
#include "tests/actors/taking_over.hpp"
#include "tests/actors/template_set.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

// Window: the head is lost, no word on the step
TEST_CASE("a new head goes on from the step that all nodes finished", "[actors][takeover]") {
  TakingOver taking;
  Head& head = taking.head;
  for (std::size_t id = 0; id < 4; ++id)
    CHECK(head.join_with(taking.at_step(id, 4)) == std::to_string(id));
  CHECK(taking.opened.empty());
  taking.pass(1s);
  REQUIRE(taking.opened.size() == 1);
  REQUIRE(taking.opened[0]);
  CHECK(taking.opened[0]->step == 4);
  REQUIRE(taking.started.size() == 1);
  CHECK(taking.started[0].size() == 4);
  for (const NodeSeen& node : head.seen) {
    REQUIRE(node.configurations.size() == 1);
    CHECK(node.configurations[0].epoch_number == 2);
    CHECK(node.configurations[0].plan == head.resources.plan);
    CHECK(node.configurations[0].moves.empty());
    CHECK(node.decisions.empty());
    CHECK(node.stops.empty());
    CHECK(node.alive > 0);
  }
  head.bring_up(2);
  REQUIRE(head.scheduler.next.size() == 1);
  CHECK(head.scheduler.next[0] == 4);
  head.plan(4);
  for (std::size_t device = 0; device < 4; ++device) head.prepared(device, 5, 1, 1, 2);
  for (std::size_t device = 0; device < 4; ++device) head.finished(device, 5, 2);
  REQUIRE(head.recorder.steps.size() == 1);
  CHECK(head.recorder.steps[0]->metrics.step == 5);
  REQUIRE(head.recorder.events.size() == 1);
  CHECK(head.recorder.events[0].kind == "head-lost");
  CHECK(head.recorder.events[0].why ==
        "the head was lost; another one, process 9 on host, gathered its nodes");
  CHECK(head.recorder.events[0].nodes.empty());
  CHECK(head.recorder.events[0].incarnation == 2);
  CHECK(head.seen[0].notes.back().tokens > 400);
}

// Window: the head is lost, one node heard COMMIT
TEST_CASE("a step that one node heard the word on is finished by the others first",
          "[actors][takeover]") {
  TakingOver taking;
  Head& head = taking.head;
  head.join_with(taking.at_step(0, 4));
  head.join_with(taking.at_step(1, 3));
  head.join_with(taking.at_step(2, 4));
  head.join_with(taking.at_step(3, 3));
  taking.pass(1s);
  CHECK(taking.opened.empty());
  for (const std::size_t id : {0u, 2u}) CHECK(head.seen[id].decisions.empty());
  for (const std::size_t id : {1u, 3u}) {
    REQUIRE(head.seen[id].decisions.size() == 1);
    CHECK(head.seen[id].decisions[0].step == 4);
    CHECK(head.seen[id].decisions[0].learning_rate == 0.5);
  }
  head.finished(1, 4);
  taking.pass(400ms);
  CHECK(taking.opened.empty());
  head.finished(3, 4);
  taking.pass(400ms);
  REQUIRE(taking.opened.size() == 1);
  CHECK(taking.opened[0]->step == 4);
  CHECK(taking.opened[0]->tokens == 400);
  CHECK(head.seen[1].configurations.size() == 1);
}

TEST_CASE("a head that only saves takes over, saves and ends", "[actors][takeover]") {
  TakingOver taking;
  Head& head = taking.head;
  head.resources.gather->ends = true;
  for (std::size_t id = 0; id < 4; ++id) head.join_with(taking.at_step(id, 4));
  taking.pass(1s);
  head.bring_up(2);
  CHECK(head.scheduler.asked == 0);
  REQUIRE(head.seen[0].saves.size() == 1);
  CHECK(head.seen[0].saves[0].step == 4);
  CHECK(head.seen[0].saves[0].number == 4);  // The head before ordered three.
}

// Window: the head is lost, and a node with it
TEST_CASE("a node that does not come is done without", "[actors][takeover]") {
  TakingOver taking;
  Head& head = taking.head;
  for (const std::size_t id : {0u, 2u, 3u}) head.join_with(taking.at_step(id, 4));
  taking.pass(4s);
  CHECK(taking.opened.empty());  // It may still come.
  taking.pass(2s);
  REQUIRE(taking.opened.size() == 1);
  REQUIRE(taking.opened[0]);
  CHECK((taking.started[0] == std::set<NodeId>{NodeId{0}, NodeId{2}, NodeId{3}}));
  REQUIRE(head.seen[2].configurations.size() == 1);
  const Configuration& next = head.seen[2].configurations.back();
  CHECK((next.plan.nodes() == std::set<NodeId>{NodeId{2}, NodeId{3}}));
  for (const NodeReady& node : next.nodes) CHECK(node.node != NodeId{1});
}

TEST_CASE("a loss behind a takeover is borne before a batch is planned", "[actors][takeover]") {
  TakingOver taking([](job::Job& job) {
    one_pipeline(job);
    job.cluster.fault_tolerance = 1;
  });
  Head& head = taking.head;
  std::int64_t drawn = 0;
  head.resources.draw_templates = [&](const ParallelPlan&) -> Result<scheduler::TemplateSet> {
    ++drawn;
    return *templates_of(head.resources.setup);
  };
  for (std::size_t id = 0; id < 4; ++id) head.join_with(taking.at_step(id, 4));
  taking.pass(1s);
  REQUIRE(head.seen[0].configurations.size() == 1);
  CHECK(head.seen[0].configurations[0].plan == head.resources.plan);  // Nothing calls for another.
  CHECK(drawn == 0);
  head.bring_up(2);
  head.lose(1);
  CHECK_FALSE(head.ended);
  CHECK(drawn == 1);
  REQUIRE(head.seen[0].configurations.size() == 2);
  CHECK_FALSE(head.seen[0].configurations[1].plan.nodes().contains(NodeId{1}));
}

TEST_CASE("a place for which one of the head's own nodes does not come is free",
          "[actors][takeover]") {
  job::Job three = engine::tiny_job();
  three.cluster.nodes = three.cluster.local_nodes = 3;
  three.parallel.layout.pipelines = {{{0, 0, {{"vision", {}}}},
                                      {1, 0, {{"llm", LayerRange{0, 2}}}},
                                      {2, 0, {{"llm", LayerRange{2, 4}}}}}};
  TakingOver taking([](job::Job& job) { job.cluster.local_nodes = 4; });
  Head& head = taking.head;
  for (std::size_t id = 0; id < 3; ++id) {
    auto holding = taking.at_step(id, 4);
    holding.plan = engine::make_parallel_plan(engine::prepare(three).value()).value();
    head.join_with(std::move(holding));
  }
  taking.pass(1s);
  REQUIRE(taking.started.size() == 1);  // Of the fourth, which the layout has no work for.
  const NodeHello spot{"spot", 7, 3, "1.0 (abc)"};
  CHECK(says(head.join(spot), "node 3 is one of those that the head starts itself"));
  head.tell(exited_atom::value, std::int32_t{4711}, std::string("exited with code 3"),
            std::int32_t{0});
  CHECK_FALSE(head.ended);
  CHECK(head.join(spot) == "3");
}

// Window: nobody holds a shard any more
TEST_CASE("a head that only saves saves what nodes hold though it is no whole model",
          "[actors][takeover]") {
  TakingOver taking(one_pipeline);
  Head& head = taking.head;
  head.resources.gather->ends = true;
  head.resources.gather->without = Error{Errc::unavailable, "nothing is saved", {}, {}};
  const bool is_behind = GENERATE(false, true);  // One of them by a step.
  for (const std::size_t id : {0u, 2u, 3u})
    head.join_with(taking.at_step(id, is_behind && id == 2 ? 3 : 4));
  taking.pass(6s);
  CHECK(taking.opened.empty() == is_behind);
  if (is_behind) {
    REQUIRE(head.seen[2].decisions.size() == 1);
    head.finished(2, 4);
    taking.pass(400ms);
  }
  REQUIRE(taking.opened.size() == 1);
  CHECK(taking.started.empty());  // Nobody comes for the node that is missing.
  for (const std::size_t id : {0u, 2u, 3u}) {
    CHECK(head.seen[id].configurations.empty());
    REQUIRE(head.seen[id].saves.size() == 1);
    CHECK(head.seen[id].saves[0].step == 4);
    SaveReport report{head.seen[id].saves[0].number, {NodeId{id}, 0}, true};
    report.file = "state-" + std::to_string(id);
    report.sha256 = "ab";
    head.tell(report);
  }
  REQUIRE(head.keeper.written.size() == 1);
  const WrittenCheckpoint& written = head.keeper.written[0];
  CHECK(written.folder.filename() == "step-4.incomplete-2");
  REQUIRE_FALSE(written.manifest.missing.empty());
  for (const state::MissingShard& shard : written.manifest.missing)
    CHECK(shard.held_by == "node 1");  // It never showed its host to this head.
  KeptCheckpoint kept;
  kept.number = written.number;
  head.tell(std::make_shared<const KeptCheckpoint>(kept));
  REQUIRE(head.ended);
  INFO(head.ended->message);
  CHECK(head.ended->exit_code == kResumable);
  CHECK(says(head.ended->message,
             "no head came for the nodes in time; what is left of step 4 is saved ("));
  for (const std::size_t id : {0u, 2u, 3u})
    CHECK(head.seen[id].exit_codes == std::vector<std::int32_t>{kResumable});
}

TEST_CASE("a head that only saves needs no layout for what nodes hold", "[actors][takeover]") {
  TakingOver taking;
  Head& head = taking.head;
  head.resources.gather->ends = true;
  head.resources.setup.job.data.sources = {{"llava", "samples.json", "", {1}}};  // Seen by node 1.
  for (const std::size_t id : {0u, 2u, 3u}) head.join_with(taking.at_step(id, 4));
  taking.pass(6s);
  CHECK_FALSE(head.ended);
  REQUIRE(taking.opened.size() == 1);
  for (const std::size_t id : {0u, 2u, 3u}) {
    CHECK(head.seen[id].configurations.empty());
    REQUIRE(head.seen[id].saves.size() == 1);
    if (head.seen[id].saves[0].shards.empty()) continue;
    SaveReport report{head.seen[id].saves[0].number, {NodeId{id}, 0}, true};
    report.file = "state-" + std::to_string(id);
    report.sha256 = "ab";
    head.tell(report);
  }
  REQUIRE(head.keeper.written.size() == 1);
  CHECK(head.keeper.written[0].folder.filename() == "step-4");
  CHECK(head.keeper.written[0].manifest.missing.empty());
}

TEST_CASE("a head that only saves leaves half a model of a step that is saved",
          "[actors][takeover]") {
  TakingOver taking(one_pipeline);
  Head& head = taking.head;
  head.resources.gather->ends = true;
  head.resources.gather->saved_step = 4;
  head.resources.gather->without = Error{Errc::unavailable, "nothing is saved", {}, {}};
  for (const std::size_t id : {0u, 2u, 3u}) head.join_with(taking.at_step(id, 4));
  taking.pass(6s);
  REQUIRE(head.ended);
  CHECK(taking.opened.empty());
  CHECK(says(head.ended->message, "nothing is saved"));
}

TEST_CASE("a checkpoint that is newer than what nodes hold is gone on from", "[actors][takeover]") {
  TakingOver taking;
  Head& head = taking.head;
  head.resources.gather->saved_step = 5;
  for (std::size_t id = 0; id < 4; ++id) head.join_with(taking.at_step(id, 4));
  taking.pass(1s);
  REQUIRE(taking.opened.size() == 1);
  CHECK_FALSE(taking.opened[0]);
  for (const NodeSeen& node : head.seen)
    CHECK((node.restarts == std::vector<std::string>{
                                "it cannot go on: step 5 is saved, and they have only come to 4"}));
}

TEST_CASE("a layout that one node turned over to comes up on all", "[actors][takeover]") {
  TakingOver taking;
  Head& head = taking.head;
  ParallelPlan other = head.resources.plan;
  std::swap(other.devices[0], other.devices[2]);  // The pipelines change places.
  std::swap(other.devices[1], other.devices[3]);
  for (std::size_t id = 0; id < 4; ++id) {
    NodeHolding holding = taking.at_step(id, 4);
    holding.newest_epoch = 2;
    if (id == 3) {
      holding.epoch_number = 2;
      holding.plan = other;
    } else {
      holding.fetched_epoch = 2;
    }
    head.join_with(std::move(holding));
  }
  taking.pass(2s);
  for (const std::size_t id : {0u, 1u, 2u})
    CHECK((head.seen[id].settled == std::vector<EpochNumber>{2}));
  CHECK(head.seen[3].settled.empty());
  REQUIRE(head.seen[0].configurations.size() == 1);
  const auto places = [&](const ParallelPlan& plan) {
    auto placed = scheduler::place_state(plan, head.resources.setup.parameters, Dtype::fp32);
    for (Shard& shard : placed) std::sort(shard.holders.begin(), shard.holders.end());
    return placed;
  };
  CHECK((places(head.seen[0].configurations[0].plan) == places(other)));
  CHECK(head.seen[0].configurations[0].epoch_number == 3);
  CHECK(head.seen[0].configurations[0].moves.empty());
}

TEST_CASE("devices without a place are asked for what they offer too", "[actors][takeover]") {
  TakingOver taking;
  Head& head = taking.head;
  for (std::size_t id = 0; id < 4; ++id) {
    NodeHolding holding = taking.at_step(id, 9);  // The last step.
    if (id == 0) holding.devices = {0, 1};        // One of an older layout.
    head.join_with(std::move(holding));
  }
  taking.pass(1s);
  head.bring_up(2);
  for (std::size_t id = 0; id < 4; ++id) {
    CHECK(head.recorder.collections.empty());
    head.tell(Offers{NodeId{id}, 2, {}});
  }
  CHECK(head.recorder.collections.empty());  // The fifth device may have all of it.
  head.tell(Offers{NodeId{0}, 2, {}});
  CHECK(head.recorder.collections.size() == 1);
}

TEST_CASE("where nobody waits the job begins as it would have", "[actors][takeover]") {
  TakingOver taking;
  Head& head = taking.head;
  taking.pass(6s);
  REQUIRE(taking.opened.size() == 1);
  CHECK_FALSE(taking.opened[0]);
  head.start_training();
  CHECK(head.scheduler.next == std::vector<std::int64_t>{0});
}

TEST_CASE("a job that cannot go on leaves the nodes their state", "[actors][takeover]") {
  TakingOver taking;
  Head& head = taking.head;
  taking.opens = Error{Errc::invalid_argument, "another job", "train.lr", "set it back"};
  for (std::size_t id = 0; id < 4; ++id) head.join_with(taking.at_step(id, 4));
  taking.pass(1s);
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == 2);
  for (const NodeSeen& node : head.seen) CHECK(node.stops.empty());
}

TEST_CASE("a signal while nodes are gathered leaves them their state", "[actors][takeover]") {
  TakingOver taking;
  Head& head = taking.head;
  head.join_with(taking.at_step(0, 4));
  const bool is_asked = GENERATE(false, true);
  if (is_asked)
    CHECK(says(head.ask({ControlRequest::Kind::stop, NodeId{-1}}),
               "the head ends; nodes of this run go on waiting for a head, with their state"));
  else
    head.tell(stop_atom::value, static_cast<std::int32_t>(15));
  taking.pass(400ms);
  REQUIRE(head.ended);
  CHECK(head.ended->exit_code == kResumable);  // The same command gathers them.
  CHECK(head.ended->message ==
        std::string(is_asked ? "stopped by troupe ctl" : "stopped by SIGTERM") +
            "; nodes of this run go on waiting for a head, with their state");
  CHECK(head.seen[0].stops.empty());
  CHECK(taking.opened.empty());  // And the run is as it was.
}

TEST_CASE("a checkpoint that is wanted while nodes are gathered is written behind that",
          "[actors][takeover]") {
  TakingOver taking;
  Head& head = taking.head;
  head.join_with(taking.at_step(0, 4));
  CHECK(head.ask({ControlRequest::Kind::checkpoint, NodeId{-1}}) ==
        "the state is saved once the nodes of the head before are gathered and go on");
  for (std::size_t id = 1; id < 4; ++id) head.join_with(taking.at_step(id, 4));
  taking.pass(1s);
  CHECK(head.seen[0].saves.empty());
  head.bring_up(2);
  REQUIRE(head.seen[0].saves.size() == 1);
  CHECK(head.seen[0].saves[0].step == 4);
}

TEST_CASE("nodes hear with each layout and step what another head will need",
          "[actors][takeover]") {
  engine::ResumePoint resume;
  resume.folder = "checkpoint";
  resume.progress.step = 2;
  resume.progress.tokens = 50;
  resume.progress.bad = {{"a", 0}};
  Head head(
      9,
      [](job::Job& job) {
        job.cluster.head_timeout_s = 60;
        job.data.max_bad_fraction = 1;
      },
      resume);
  head.start_training();
  CHECK(head.seen[0].configurations[0].progress.step == 2);
  CHECK(head.seen[0].configurations[0].progress.tokens == 50);
  CHECK((head.seen[0].configurations[0].progress.bad == std::vector<BadSampleNote>{{"a", 0}}));
  head.plan(2);
  for (std::size_t device = 0; device < 4; ++device) head.prepared(device, 3, 1, 1);
  REQUIRE(head.seen[3].notes.size() == 1);
  const engine::StepNote& note = head.seen[3].notes[0];
  CHECK(note.step == 3);
  CHECK(note.tokens == 50 + note.step_tokens);
  CHECK(note.step_tokens > 0);
  CHECK(note.ids.size() == 6);
}

}  // namespace
}  // namespace troupe::actors
