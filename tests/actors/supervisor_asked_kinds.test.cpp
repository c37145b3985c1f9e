// Layouts that a running job is asked for, or makes itself, and the kinds that are to run stages.

#include "tests/torch_catch.hpp"

#include "actors/supervisor/supervisor_asked_layout.hpp"

#include <chrono>
#include <memory>
#include <string>

#include "engine/execution/stage_kinds.hpp"
#include "engine/iteration/stated_costs.hpp"
#include "tests/actors/members_fixture.hpp"
#include "tests/engine/audio_job.hpp"

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

/// A kind for either encoder, which run the engine's own stage; `listeners` keep what a forward
/// leaves on the device. They stay for the rest of the process, whose other jobs have no audio.
void register_kinds() {
  if (!engine::stage_kind_names().empty()) return;
  const bool offloads = true;
  REQUIRE(engine::register_stage({"seers", {"qwen2-vl"}, engine::built_in_stage, offloads}).ok());
  REQUIRE(engine::register_stage({"listeners", {"whisper"}, engine::built_in_stage}).ok());
}

/// A job whose encoders stand on nodes 0 and 1, the llm on the others.
void encoders_apart(job::Job& job) {
  job.modules = engine::tiny_job_with_audio().modules;
  job.parallel.layout.pipelines = {{{0, 0, {{"audio", {}}}},
                                    {1, 0, {{"vision", {}}}},
                                    {2, 0, {{"llm", LayerRange{0, 2}}}},
                                    {3, 0, {{"llm", LayerRange{2, 4}}}}}};
}

TEST_CASE("a layout with a stage that no kind can run is refused at once, and the job trains on",
          "[actors][layout][errors]") {
  register_kinds();
  Members members(encoders_apart);
  Head& head = members.head;
  const auto generation = [&head] { return head.seen[0].configurations.back().epoch_number; };
  const std::string table = "[[parallel.pipelines]]\nstages = [";
  const std::string apart = table +
                            "{node = 0, audio = \"all\"}, {node = 1, vision = \"all\"}, "
                            "{node = 2, llm = \"all\"}]\n";
  SECTION("two kinds") {
    const std::string answer = members.ask_for(
        table + "{node = 0, audio = \"all\", vision = \"all\"}, {node = 1, llm = \"all\"}]\n");
    CHECK(says(answer, "a stage has layers of two stage kinds, 'seers' and 'listeners'"));
    CHECK(says(answer, "fix: cut the layout between their modules"));
    CHECK(generation() == 1);
    CHECK(says(members.ask_for(apart), "layout changes before the next step"));
    CHECK(generation() == 2);
  }
  SECTION("a kind that keeps what is to be put away") {
    head.resources.setup.job.scheduler.offload_encoders = "activations";
    const std::string answer = members.ask_for(apart);
    CHECK(says(answer, "scheduler.offload_encoders: stage kind 'listeners' keeps"));
    CHECK(says(answer, "fix: write \"moments\" or \"off\""));
    CHECK(generation() == 1);
  }
  CHECK_FALSE(head.ended);
}

/// Two pipelines, each of audio on a node and the rest on another one.
void two_pipelines(job::Job& job) {
  job.modules = engine::tiny_job_with_audio().modules;
  job.parallel.layout.pipelines = {
      {{0, 0, {{"audio", {}}}}, {1, 0, {{"vision", {}}, {"llm", LayerRange{0, 4}}}}},
      {{2, 0, {{"audio", {}}}}, {3, 0, {{"vision", {}}, {"llm", LayerRange{0, 4}}}}}};
}

/// Of pipelines on up to four nodes. The llm's layers take nearly all the time, so that both
/// encoders share a stage on any of them.
TemplateSetPtr templates_that_join_encoders(const engine::JobSetup& setup) {
  scheduler::TemplateRequest request;
  for (const auto& module : setup.model.modules)
    request.layers.insert(request.layers.end(), module.layers.size(),
                          {module.kind == ModuleKind::llm ? 100.0 : 1.0, 0, Bytes{1}, {}});
  request.node_count = 4;
  request.device_memory = Bytes{100};
  return std::make_shared<const scheduler::TemplateSet>(scheduler::make_templates(request).value());
}

/// Whether kinds can run the layout that the job has taken up last.
bool can_run(const Head& head) {
  return engine::check_stage_kinds(head.seen[0].configurations.back().plan,
                                   head.resources.setup.modules())
      .ok();
}

TEST_CASE("a layout that no kind can run is left out where a job goes on without a lost node",
          "[actors][layout][recovery]") {
  register_kinds();
  Members members(two_pipelines);
  members.lose(3);  // A pipeline on node 2 alone, which is tried first, has a stage of both kinds.
  REQUIRE(members.head.seen[0].configurations.size() == 2);
  CHECK(can_run(members.head));
  members.bring_up(2, {0, 1, 2});
  CHECK(says(members.log(), "going on from step 1 after the loss of node 3"));
  CHECK(says(members.log(),
             " cannot be: a stage has layers of two stage kinds, 'seers' and 'listeners'"));
  CHECK_FALSE(members.head.ended);
}

// Window: nobody left sees a source of data, or no layout fits them
TEST_CASE("a job that no kind can run on the nodes left waits for others, and says why",
          "[actors][layout][recovery]") {
  register_kinds();
  Members members([](job::Job& job) {
    encoders_apart(job);
    job.cluster.fault_tolerance = 1;
    job.recovery.wait_for_nodes_s = 10;
  });
  Head& head = members.head;
  head.tell(templates_that_join_encoders(head.resources.setup));
  members.lose(3);
  CHECK(head.seen[0].configurations.size() == 1);
  CHECK(says(members.log(),
             "no layout works on the 3 nodes that are left, though all state is there: a stage has "
             "layers of two stage kinds, 'seers' and 'listeners' (cut the layout between their "
             "modules); 4, as before, are enough; the job waits 10 s"));
  SECTION("one comes") {
    REQUIRE(head.join("another") == "3");
    head.ready(3);
    head.pass(1s, {0, 1, 2, 3});
    REQUIRE(head.seen[0].configurations.size() == 2);
    CHECK(can_run(head));
    CHECK_FALSE(head.ended);
  }
  SECTION("none comes") {
    head.pass(11s, {0, 1, 2});
    REQUIRE(head.ended);
    CHECK(says(head.ended->message, "(cut the layout between their modules); 4, as before, are"));
  }
}

TEST_CASE("a job whose templates know the kinds goes on with a stage of each on one node",
          "[actors][layout][recovery]") {
  register_kinds();
  Members members([](job::Job& job) {
    encoders_apart(job);
    job.cluster.fault_tolerance = 1;
  });
  Head& head = members.head;
  const engine::JobSetup& setup = head.resources.setup;
  scheduler::TemplateSet set = *templates_that_join_encoders(setup);
  set.stage_kinds = engine::kinds_by_module(setup.model, setup.modules());
  head.tell(TemplateSetPtr(std::make_shared<const scheduler::TemplateSet>(std::move(set))));
  members.lose(3);
  REQUIRE(head.seen[0].configurations.size() == 2);
  CHECK(can_run(head));
  CHECK_FALSE(head.ended);
}

}  // namespace
}  // namespace troupe::actors
