#include "actors/supervisor/supervisor_asked_layout.hpp"

#include "engine/layout/choose_layout.hpp"
#include "engine/profiling/nominal_profile.hpp"
#include "scheduler/recovery/relayout.hpp"
#include "tests/actors/members_fixture.hpp"
#include "tests/scheduler/preferred_layout.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

/// One pipeline: the encoder on one node, the llm on another.
std::string on(std::int32_t encoder, std::int32_t llm) {
  return "[[parallel.pipelines]]\nstages = [{node = " + std::to_string(encoder) +
         ", vision = \"all\"}, {node = " + std::to_string(llm) + ", llm = \"all\"}]\n";
}

std::set<NodeId> nodes(const std::vector<std::int32_t>& ids) {
  std::set<NodeId> set;
  for (const std::int32_t id : ids) set.insert(NodeId{id});
  return set;
}

const Configuration& newest(const Head& head, std::size_t node = 0) {
  return head.seen[node].configurations.back();
}

TEST_CASE("a layout that is asked for comes up before the next step", "[actors][layout]") {
  Members members;
  Head& head = members.head;
  head.plan(0);
  CHECK(head.scheduler.asked == 2);
  CHECK(members.ask_for(on(3, 1)) ==
        "layout changes before the next step: 1 pipeline of 2 stages, nodes 0 and 2 without work");
  CHECK(head.seen[0].configurations.size() == 1);  // The step under way comes first.
  members.run_step(1, 1);
  for (const NodeSeen& node : head.seen) REQUIRE(node.configurations.size() == 2);
  CHECK(newest(head).epoch_number == 2);
  CHECK((newest(head).plan.nodes() == nodes({1, 3})));
  CHECK(head.scheduler.asked_layouts == 1);
  CHECK(head.scheduler.begins.size() == 1);
  members.bring_up(2, {0, 1, 2, 3});
  CHECK(head.scheduler.next.back() == 1);
  CHECK(head.scheduler.asked == 3);  // What was asked for before does not come any more.
  head.plan(1);
  members.run_step(2, 2);
  CHECK(head.seen[0].configurations.size() == 2);  // It is taken up once.
  REQUIRE(head.recorder.steps.size() == 2);
  CHECK(head.recorder.steps[1]->metrics.step == 2);
  CHECK(head.seen[1].plans.size() == 2);
  CHECK(head.seen[0].plans.size() == 1);  // It idles.
  REQUIRE(head.recorder.events.size() == 1);
  const auto& event = head.recorder.events[0];
  CHECK(event.kind == "layout");
  CHECK(event.why == "troupe ctl asks for it");
  CHECK(event.step == 2);
  CHECK(event.generation == 2);
  CHECK((event.nodes == std::vector<NodeId>{NodeId{1}, NodeId{3}}));
  CHECK(says(members.log(), "troupe ctl asks for another layout from the next step on"));
}

TEST_CASE("a layout comes up at once where no step is under way", "[actors][layout]") {
  Members members;
  members.ask_for(on(0, 1));
  CHECK(newest(members.head).epoch_number == 2);
}

TEST_CASE("a layout that is asked for while another one comes up follows it", "[actors][layout]") {
  Members members;
  Head& head = members.head;
  members.ask_for(on(0, 1));
  CHECK(says(members.ask_for(on(2, 3)), "layout changes before the next step"));
  CHECK(newest(head).epoch_number == 2);
  members.bring_up(2, {0, 1, 2, 3});
  CHECK(newest(head).epoch_number == 3);
  CHECK((newest(head).plan.nodes() == nodes({2, 3})));
}

TEST_CASE("of two layouts that are asked for before a step the later one counts",
          "[actors][layout]") {
  Members members;
  Head& head = members.head;
  head.plan(0);
  members.ask_for(on(0, 1));
  CHECK(says(members.ask_for(on(2, 3)), "; the one that was asked for before is dropped"));
  SECTION("it is another one") {
    members.run_step(1, 1);
    CHECK((newest(head).plan.nodes() == nodes({2, 3})));
    members.bring_up(2, {0, 1, 2, 3});
    CHECK(newest(head).epoch_number == 2);
  }
  SECTION("it is the present one") {
    const std::string present = on(0, 1) +
                                "[[parallel.pipelines]]\n"
                                "stages = [{node = 2, vision = \"all\", llm = [0, 2]}, "
                                "{node = 3, llm = [2, 4]}]\n";
    CHECK(members.ask_for(present) ==
          "this is the present layout: it stays; the one that was asked for before is dropped");
    members.run_step(1, 1);
    CHECK(newest(head).epoch_number == 1);
  }
}

TEST_CASE("a layout that cannot be is refused with the place and the fix, and the job trains on",
          "[actors][layout][errors]") {
  Members members;
  Head& head = members.head;
  head.plan(0);
  SECTION("something else in the file") {
    CHECK(says(members.ask_for(on(0, 1) + "[train]\nsteps = 3\n"),
               "no: other.toml:3: train: a layout file holds [parallel] alone; fix: remove it"));
  }
  SECTION("not all layers") {
    CHECK(says(members.ask_for("[[parallel.pipelines]]\nstages = [{node = 0, llm = \"all\"}]\n"),
               "no stage holds vision; fix: add vision"));
  }
  SECTION("a node that the job never has") {
    CHECK(says(members.ask_for(on(0, 4)),
               "no: other.toml:2: parallel.pipelines[0].stages[1].node: 4, but the job has 4 "
               "nodes; fix: "));
  }
  SECTION("a node that leaves") {
    members.ask(ControlRequest::Kind::drain, 3);
    CHECK(says(members.ask_for(on(0, 3)),
               "no: other.toml:2: parallel.pipelines[0].stages[1].node: node 3 leaves the job; "
               "fix: lay it out on the others"));
    return;  // It leaves before the next step.
  }
  members.run_step(1, 1);
  CHECK(newest(head).epoch_number == 1);
  head.plan(1);
  members.run_step(2, 1);
  CHECK(head.recorder.steps.size() == 2);
  CHECK(head.recorder.events.empty());
}

TEST_CASE("a layout on a node that is not there is refused", "[actors][layout][errors]") {
  Members members;
  Head& head = members.head;
  head.plan(0);
  members.lose(1);
  members.bring_up(2, {0, 2, 3});
  head.plan(0);
  const std::string replicas =
      "[[parallel.replicas]]\nmodules = [\"vision\"]\nstages = [{node = 0, vision = \"all\"}]\n"
      "[[parallel.replicas]]\nmodules = [\"llm\"]\nstages = [{node = 1, llm = \"all\"}]\n";
  CHECK(says(members.ask_for(replicas),
             "no: other.toml:6: parallel.replicas[1].stages[0].node: node 1 is not there; fix: "
             "troupe ctl RUN status"));
  head.join("another");
  CHECK(says(members.ask_for(on(0, 1)), "node 1 still opens its data; fix: ask again once"));
  head.ready(1);
  CHECK(says(members.ask_for(on(0, 1)), "layout changes before the next step"));
}

TEST_CASE("a layout without room beside the present one is refused", "[actors][layout][errors]") {
  // Nodes 0 and 1 change places: each has room for either half, not for both.
  Members members(no_room_beside);
  members.head.plan(0);
  CHECK(says(members.ask_for(on(1, 0)), "no: cluster.device_memory_gib: parameters, gradients"));
  members.run_step(1, 1);
  CHECK(newest(members.head).epoch_number == 1);
}

TEST_CASE("a layout on which no step can be planned is refused", "[actors][layout][errors]") {
  Members members;
  Head& head = members.head;
  head.plan(0);
  engine::JobSetup& setup = head.resources.setup;
  setup.costs = engine::planning_costs(setup, engine::nominal_profile(setup), Bytes{1000}).value();
  CHECK(says(members.ask_for(on(0, 1)), "no: "));
  setup.costs.reset();
  members.run_step(1, 1);
  CHECK(newest(head).epoch_number == 1);
}

TEST_CASE("a layout that no step will need is refused", "[actors][layout][errors]") {
  const std::string planned = "no: the job's last step is planned already; fix: resume the job";
  SECTION("the job has not begun") {
    Head head;
    std::string answer;
    const auto asker =
        head.system.get().spawn([&, actor = head.actor](caf::event_based_actor* self) {
          self->request(actor, caf::infinite, control_atom::value,
                        ControlRequest{ControlRequest::Kind::layout, {}, on(0, 1), "other.toml"})
              .then([&](const std::string& text) { answer = text; },
                    [&](const caf::error& e) { answer = e.context().get_as<std::string>(0); });
        });
    head.system.run();
    CHECK(answer == "the job has not begun");
  }
  SECTION("the last step is planned, or is about to be on the present layout") {
    Members members({}, 2);
    Head& head = members.head;
    head.plan(0);
    CHECK(says(members.ask_for(on(0, 1)), planned));
    head.plan(1);
    CHECK(says(members.ask_for(on(0, 1)), planned));
    members.run_step(1, 1);
    members.run_step(2, 1);
    CHECK(says(members.ask_for(on(0, 1)), "no: the job has trained its last step"));
  }
  SECTION("the job stops") {
    Members members;
    members.head.plan(0);
    members.run_step(1, 1);
    members.ask(ControlRequest::Kind::stop);
    CHECK(says(members.ask_for(on(0, 1)), "no: the job ends already"));
  }
}

TEST_CASE("a layout that comes too late for a job of tokens is told in the log",
          "[actors][layout][errors]") {
  Members members([](job::Job& job) {
    const auto setup = engine::prepare(job).value();
    engine::SampleStore store;
    const auto first =
        engine::plan_tiny_batch(setup, engine::make_parallel_plan(setup).value(), store);
    TokenCount tokens = 1;
    for (const auto& sample : first.value().iteration.samples) tokens += sample.llm_tokens;
    job.train.duration = {job::DurationUnit::tokens, tokens};
  });
  Head& head = members.head;
  head.plan(0);
  CHECK(says(members.ask_for(on(0, 1)), "layout changes before the next step"));
  head.plan(1);  // The last one, on its way already.
  members.run_step(1, 1);
  members.run_step(2, 1);
  CHECK(newest(head).epoch_number == 1);
  CHECK(head.seen[0].collections.size() == 1);
  CHECK(says(members.log(), "asked for is not taken up: the job's last step was planned before"));
}

TEST_CASE("a loss while a layout waits comes first", "[actors][layout]") {
  Members members;
  Head& head = members.head;
  head.plan(0);
  members.ask_for(on(0, 1));
  SECTION("of a node that the layout does without") {
    members.lose(3);
    CHECK((newest(head).plan.nodes() == nodes({0, 1, 2})));
    members.bring_up(2, {0, 1, 2});
    CHECK(newest(head).epoch_number == 3);
    CHECK((newest(head).plan.nodes() == nodes({0, 1})));
    members.bring_up(3, {0, 1, 2});
    CHECK(head.scheduler.next.back() == 0);  // The step under way was lost.
    head.plan(0);
    members.run_step(1, 3);
    REQUIRE(head.recorder.events.size() == 2);
    CHECK(head.recorder.events[0].kind == "lost");
    CHECK(head.recorder.events[0].generation == 2);
    CHECK(head.recorder.events[1].kind == "layout");
    CHECK(head.recorder.events[1].generation == 3);
  }
  SECTION("of a node that the layout needs") {
    members.lose(1);
    members.bring_up(2, {0, 2, 3});
    CHECK(newest(head).epoch_number == 2);
    CHECK(says(members.log(), "is not taken up, the present one stays: "));
    CHECK(says(members.log(), "node 1 is not there"));
    head.plan(0);
    members.run_step(1, 2);
    CHECK(head.recorder.steps.size() == 1);
  }
  CHECK_FALSE(head.ended);
}

TEST_CASE("a loss while a layout comes up goes on from it", "[actors][layout]") {
  Members members;
  Head& head = members.head;
  head.plan(0);
  // Two pipelines of one node each, the others idle: none of the two is needed for the other.
  const std::string twice =
      "[[parallel.pipelines]]\nstages = [{node = 0, vision = \"all\", llm = \"all\"}]\n"
      "[[parallel.pipelines]]\nstages = [{node = 1, vision = \"all\", llm = \"all\"}]\n";
  members.ask_for(twice);
  members.run_step(1, 1);
  REQUIRE(newest(head).epoch_number == 2);
  SECTION("before all have fetched") { members.lose(1); }
  SECTION("before all have turned over") {
    for (const std::size_t id : {0u, 1u, 2u, 3u})
      head.tell(fetched_atom::value, NodeId{id}, EpochNumber{2}, 0.0);
    members.lose(1);
  }
  const Configuration& next = newest(head);
  CHECK(next.epoch_number == 3);
  const auto expected = scheduler::relayout(
      {head.seen[0].configurations[1].plan, {4, 1}, *members.templates, 6, {}, nodes({0, 2, 3})});
  CHECK((next.plan == expected.value().plan));
  CHECK((next.plan.nodes() == nodes({0, 2, 3})));
  members.bring_up(3, {0, 2, 3});
  CHECK(head.scheduler.next.back() == 1);
  head.plan(1);
  members.run_step(2, 3);
  CHECK(head.recorder.steps.size() == 2);
  REQUIRE(head.recorder.events.size() == 1);
  CHECK(head.recorder.events[0].kind == "lost");
  CHECK_FALSE(head.ended);
}

TEST_CASE("who leaves while a layout waits goes first", "[actors][layout]") {
  Members members;
  Head& head = members.head;
  head.plan(0);
  members.ask_for(on(0, 1));
  const auto leaves = [&](std::int32_t node) {
    CHECK(says(members.ask(ControlRequest::Kind::drain, node), "leaves before the next step"));
    members.run_step(1, 1);
    CHECK(newest(head).epoch_number == 2);
    members.bring_up(2, {0, 1, 2, 3});
  };
  SECTION("from outside of it") {
    leaves(3);
    CHECK(newest(head).epoch_number == 3);
    CHECK((newest(head).plan.nodes() == nodes({0, 1})));
    members.bring_up(3, {0, 1, 2});
  }
  SECTION("from within") {
    leaves(1);
    CHECK(newest(head).epoch_number == 2);
    CHECK(says(members.log(), "node 1 is not there"));
  }
  head.plan(1);
  members.run_step(2, newest(head).epoch_number);
  CHECK(head.recorder.steps.size() == 2);
}

TEST_CASE("a node that joins after a layout was asked for is taken in from it",
          "[actors][layout]") {
  Members members;
  Head& head = members.head;
  head.plan(0);
  members.lose(3);
  members.bring_up(2, {0, 1, 2});
  head.plan(0);
  members.ask_for(on(0, 1));
  members.run_step(1, 2);
  members.bring_up(3, {0, 1, 2});
  head.plan(1);
  head.join("another");
  head.ready(3);
  members.run_step(2, 3);
  const Configuration& next = newest(head);
  CHECK(next.epoch_number == 4);
  CHECK((next.plan.nodes() == nodes({0, 1, 2, 3})));
  // The pipeline of the asked layout is still there, as it was cut.
  CHECK(next.plan.stages_of(PipelineId{0}).size() == 2);
}

TEST_CASE("what a layout that was asked for holds once cannot be lost", "[actors][layout]") {
  Members members;
  Head& head = members.head;
  head.plan(0);
  members.ask_for(on(2, 3));
  members.run_step(1, 1);
  members.bring_up(2, {0, 1, 2, 3});
  REQUIRE(head.recorder.events.size() == 1);
  CHECK(head.recorder.events[0].tolerance_left == 0);
  head.plan(1);
  members.lose(2);        // Node 0 had the encoder too, in the layout before.
  head.leave({0, 1, 3});  // Who would have saved what is left.
  head.system.pass(400ms);
  REQUIRE(head.ended);
  CHECK(says(head.ended->message, "no other node has vision."));
}

}  // namespace
}  // namespace troupe::actors
