#include "tests/torch_catch.hpp"

#include "engine/run/head_memory_file.hpp"

#include <fstream>

#include "tests/support/scratch_folder.hpp"

namespace troupe::engine {
namespace {

/// As of this step.
HeadMemory example(std::int64_t step) {
  HeadMemory memory;
  memory.step = step;
  memory.costs.profile = "2026-11-28T10:14:40Z";
  memory.costs.stages = {{"llm 0-3 on 1.0", {"llm"}, 2.5}};
  memory.costs.speed_steps = 12;
  memory.costs.parts = {{0, "", 64, 1.5, 3}};
  memory.slow = {{NodeId{3}, 4, 1.25, 1}};
  memory.changes = {5, 1.5e6};
  return memory;
}

JobProgress saved_at(std::int64_t step) {
  JobProgress saved;
  saved.step = step;
  saved.learned = example(step).costs;
  saved.learned.speed_steps = 7;
  return saved;
}

TEST_CASE("what a head has learned is read as it was written", "[engine]") {
  const testing::ScratchFolder scratch;
  CHECK_FALSE(read_head_memory(scratch.path()));
  REQUIRE(write_head_memory(scratch.path(), example(5)).ok());
  REQUIRE(write_head_memory(scratch.path(), example(6)).ok());
  CHECK((read_head_memory(scratch.path()) == example(6)));
}

TEST_CASE("another head goes by the newest that it can trust", "[engine]") {
  const testing::ScratchFolder scratch;
  // No file: the checkpoint's, or nothing.
  CHECK((recall_head_memory(scratch.path(), saved_at(4), 9) == HeadMemory{4, saved_at(4).learned}));
  CHECK((recall_head_memory(scratch.path(), {}, 9) == HeadMemory{}));
  REQUIRE(write_head_memory(scratch.path(), example(6)).ok());
  CHECK((recall_head_memory(scratch.path(), {}, 9) == example(6)));
  CHECK((recall_head_memory(scratch.path(), saved_at(4), 6) == example(6)));
  // The checkpoint is newer; and the run went back behind what the file says.
  CHECK(recall_head_memory(scratch.path(), saved_at(8), 9).step == 8);
  CHECK((recall_head_memory(scratch.path(), saved_at(4), 5) == HeadMemory{4, saved_at(4).learned}));
}

TEST_CASE("a file of learned costs that is damaged is as good as none", "[engine][errors]") {
  const testing::ScratchFolder scratch;
  const auto write = [&scratch](const std::string& text) {
    std::ofstream(scratch.path() / "learned.json") << text;
  };
  const auto whole = [](const std::string& times, const std::string& elapsed_ms) {
    return R"({"step":1,"learned":{"profile":"","stages":[],"speed_steps":0,"samples":[],)"
           R"("parts":[],"watches":true,"benefit":0,"benefit_steps":0},)"
           R"("slow":[{"node":1,"times":)" +
           times + R"(,"own_usual":1,"beside_usual":1}],"changes":2,"elapsed_ms":)" + elapsed_ms +
           "}";
  };
  write(whole("1", "0"));
  CHECK(read_head_memory(scratch.path()));
  for (const std::string& text : {std::string(), std::string("[]"), std::string("{\"step\":1"),
                                  std::string("{\"step\":1,\"learned\":{},\"slow\":[]}"),
                                  whole("0", "0"), whole("1", "-1"), whole("1", "\"\"")}) {
    write(text);
    CHECK_FALSE(read_head_memory(scratch.path()));
  }
}

}  // namespace
}  // namespace troupe::engine
