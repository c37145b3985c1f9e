#include "runtime/observe/run_facts.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fstream>

#include "tests/support/scratch_folder.hpp"

namespace troupe::observe {
namespace {

using testing::ScratchFolder;

RunFacts example() {
  RunFacts facts;
  facts.id = "5f0c9e1b7a3d2486";
  facts.incarnation = 3;
  facts.job = "first \"job\"";
  facts.command = "troupe train first.toml";
  facts.version = "0.1.0 (abc)";
  facts.libraries = "LibTorch 2";
  facts.host = "host-a";
  facts.processor = "Fast";
  facts.cores = 8;
  facts.nodes = 4;
  facts.local_nodes = 2;
  facts.schedule = "1f1b";
  facts.policy = "dflop";
  facts.dtype = "bf16";
  facts.steps = 6000;
  facts.batch = 16;
  facts.epochs = {{0, {40, 8}}, {2, {40, 12}}};
  facts.started_s = 1'795'411'353;
  return facts;
}

TEST_CASE("facts of a run are read as they were written", "[observe]") {
  const ScratchFolder folder;
  auto facts = example();
  REQUIRE(write_run_facts(folder.path(), facts).ok());
  CHECK(read_run_facts(folder.path()).value() == facts);
  facts.end = RunEnd{facts.started_s + 99, 1, "node 2 was lost\n  fix: look at its log"};
  REQUIRE(write_run_facts(folder.path(), facts).ok());
  CHECK(read_run_facts(folder.path()).value() == facts);
}

TEST_CASE("facts that are missing or of the wrong kind stay empty", "[observe]") {
  const auto facts = parse_run_facts(
      R"({"job": 7, "cores": "many", "host": "a", "started": "yesterday", "exit_code": "no",
          "unknown": [1]})");
  CHECK(facts.value().job.empty());
  CHECK(facts.value().cores == 0);
  CHECK(facts.value().host == "a");
  CHECK(facts.value().started_s == 0);
  CHECK(facts.value().end->exit_code == 0);
}

TEST_CASE("facts that are no object are refused", "[observe][errors]") {
  const ScratchFolder folder;
  CHECK(read_run_facts(folder.path()).error().code == Errc::not_found);
  for (const auto* text : {"", "[1]", "{\"job\""}) {
    std::ofstream(folder / "run.json") << text;
    CHECK(read_run_facts(folder.path()).error().code == Errc::bad_data);
  }
  std::ofstream(folder / "file") << "in the way";
  CHECK(write_run_facts(folder / "file", example()).error().code == Errc::io_failed);
}

TEST_CASE("times and durations are said as people say them", "[observe]") {
  CHECK(minute_text(1'795'411'353) == "2026-11-23 05:22 UTC");
  CHECK(duration_text(0) == "0 s");
  CHECK(duration_text(119) == "119 s");
  CHECK(duration_text(125) == "2 min");
  CHECK(duration_text(3 * 3600 + 7 * 60) == "3 h 07 min");
  CHECK(duration_text(2 * 86'400 + 5 * 3600) == "2 d 5 h");
}

}  // namespace
}  // namespace troupe::observe
