// Layouts that a running job is asked for, and kinds of stages that are to run them.

#include "tests/torch_catch.hpp"

#include "actors/supervisor/supervisor_asked_layout.hpp"

#include <string>

#include "engine/execution/stage_kinds.hpp"
#include "tests/actors/members_fixture.hpp"
#include "tests/engine/audio_job.hpp"

namespace troupe::actors {
namespace {

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

}  // namespace
}  // namespace troupe::actors
