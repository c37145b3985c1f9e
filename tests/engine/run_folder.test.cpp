#include "tests/torch_catch.hpp"

#include "engine/run/run_folder.hpp"

#include <algorithm>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "engine/run/head_memory_file.hpp"
#include "engine/run/run_lock.hpp"
#include "runtime/observe/plan_json.hpp"
#include "tests/support/scratch_folder.hpp"

namespace troupe::engine {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

std::string content(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("an older run is moved aside, whole, to the next free number", "[engine]") {
  const testing::ScratchFolder scratch;
  for (const char* job : {"first", "second", "third"}) {
    const auto folder = RunFolder::create(scratch / "run", job);
    REQUIRE(folder.ok());
    CHECK(folder.value().moved_to().has_value() == (job != std::string("first")));
  }
  CHECK(content(scratch / "run.1" / "resolved.toml") == "first");
  CHECK(content(scratch / "run.2" / "resolved.toml") == "second");
  CHECK(content(scratch / "run" / "resolved.toml") == "third");
}

TEST_CASE("a folder that holds anything but a run is refused and left alone", "[engine][errors]") {
  const testing::ScratchFolder scratch;
  fs::create_directories(scratch / "thesis");
  std::ofstream(scratch / "thesis" / "chapter.tex") << "years of work";
  // A file of that name does not make it a run.
  std::ofstream(scratch / "thesis" / "resolved.toml") << "mine";

  const auto refused = RunFolder::create(scratch / "thesis", "job");
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::invalid_argument);
  CHECK_THAT(refused.error().message, ContainsSubstring("holds something else than a run"));
  CHECK_THAT(refused.error().where, ContainsSubstring("thesis"));
  CHECK(content(scratch / "thesis" / "chapter.tex") == "years of work");
  CHECK(content(scratch / "thesis" / "resolved.toml") == "mine");
  CHECK_FALSE(fs::exists(scratch / "thesis.1"));
  CHECK_FALSE(fs::exists(scratch / "thesis" / "metrics.jsonl"));

  std::ofstream(scratch / "file") << "text";
  CHECK_THAT(RunFolder::check(scratch / "file").error().message, ContainsSubstring("it is a file"));
}

TEST_CASE("plan.json is the present layout's, those before it are kept by number", "[engine]") {
  const testing::ScratchFolder scratch;
  auto folder = RunFolder::create(scratch / "run", "job").value();
  ParallelPlan plan;
  for (const EpochNumber number : {1u, 2u, 5u}) {
    plan.devices.push_back({NodeId{0}, static_cast<std::int32_t>(number)});
    REQUIRE(folder.write_plan(plan, number).ok());
  }
  const auto number_in = [&](const fs::path& path) {
    return observe::parse_plan(content(path)).value().epoch_number;
  };
  CHECK(number_in(scratch / "run" / "plan.json") == 5);
  CHECK(number_in(RunFolder::older_plan(scratch / "run", 1)) == 1);
  CHECK(number_in(RunFolder::older_plan(scratch / "run", 2)) == 2);
}

TEST_CASE("a run without events has no file of them, others a line for each", "[engine]") {
  const testing::ScratchFolder scratch;
  auto folder = RunFolder::create(scratch / "run", "job").value();
  CHECK_FALSE(fs::exists(scratch / "run" / "events.jsonl"));
  observe::RunEvent event;
  event.kind = "layout";
  event.copy_bytes = 77;
  for (event.step = 3; event.step < 5; ++event.step) REQUIRE(folder.write_event(event).ok());
  const std::string lines = content(scratch / "run" / "events.jsonl");
  CHECK(std::count(lines.begin(), lines.end(), '\n') == 2);
  CHECK_THAT(lines, ContainsSubstring(R"("step":4)") && ContainsSubstring(R"("copy_bytes":77)"));
}

TEST_CASE("phases of a change stand in its first line alone", "[engine]") {
  const testing::ScratchFolder scratch;
  auto folder = RunFolder::create(scratch / "run", "job").value();
  observe::RunEvent event;
  event.kind = "joined";
  event.has_phases = false;
  event.warm_up_steps = 3;
  REQUIRE(folder.write_event(event).ok());
  const std::string line = content(scratch / "run" / "events.jsonl");
  CHECK_THAT(line, !ContainsSubstring("copy_") && !ContainsSubstring("decide_ms"));
  CHECK_THAT(line, ContainsSubstring("warm_up_steps") && ContainsSubstring("tolerance_left"));
}

observe::RunEvent event_of(const char* kind, std::vector<NodeId> nodes, EpochNumber generation,
                           bool is_under_way) {
  observe::RunEvent made;
  made.kind = kind;
  made.nodes = std::move(nodes);
  made.generation = generation;
  made.step = 5;
  made.is_under_way = is_under_way;
  return made;
}

TEST_CASE("what had begun when a run ended is told once, by who goes on with it", "[engine]") {
  const testing::ScratchFolder scratch;
  const fs::path run = scratch / "run", begun = run / "begun_events.jsonl";
  {
    auto folder = RunFolder::create(run, "job").value();
    REQUIRE(folder.write_event(event_of("lost", {NodeId{1}}, 2, true)).ok());
    CHECK_FALSE(fs::exists(run / "events.jsonl"));
    REQUIRE(folder.write_event(event_of("joined", {NodeId{4}}, 2, true)).ok());
    REQUIRE(folder.write_event(event_of("lost", {NodeId{1}}, 2, false)).ok());
    REQUIRE(folder.write_event(event_of("joined", {NodeId{4}}, 2, false)).ok());
    CHECK_FALSE(fs::exists(begun));
    // Another one is lost before the job goes on without the first: both are one event.
    REQUIRE(folder.write_event(event_of("lost", {NodeId{3}}, 3, true)).ok());
    REQUIRE(folder.write_event(event_of("lost", {NodeId{3}, NodeId{2}}, 4, true)).ok());
    REQUIRE(folder.write_event(event_of("checkpoint", {}, 4, false)).ok());
    CHECK(fs::exists(begun));
  }
  JobProgress progress;
  progress.step = 4;
  for (int time = 0; time < 2; ++time) {
    REQUIRE(RunFolder::resume(run, "job", progress, 4, 4).ok());
    CHECK_FALSE(fs::exists(begun));
    const std::string lines = content(run / "events.jsonl");
    CHECK(std::count(lines.begin(), lines.end(), '\n') == 4);
    CHECK_THAT(lines, ContainsSubstring(R"("kind":"lost","nodes":[3,2],"why":"; the head ended)"));
  }
}

TEST_CASE("what began with a layout that did not come up is not told as if it had", "[engine]") {
  const testing::ScratchFolder scratch;
  const fs::path begun = scratch / "run" / "begun_events.jsonl";
  auto folder = RunFolder::create(scratch / "run", "job").value();
  // Node 4 joins and node 3 leaves: before that layout is up node 4 is lost, and node 3 is needed.
  for (const char* kind : {"joined", "drained"}) {
    const std::vector<NodeId> nodes = {NodeId{kind == std::string("joined") ? 4 : 3}};
    REQUIRE(folder.write_event(event_of(kind, nodes, 5, true)).ok());
  }
  REQUIRE(folder.write_event(event_of("lost", {NodeId{4}}, 6, true)).ok());
  REQUIRE(folder.write_event(event_of("checkpoint", {}, 6, false)).ok());  // Says nothing of it.
  const std::string before = content(begun);
  CHECK(std::count(before.begin(), before.end(), '\n') == 3);
  REQUIRE(folder.write_event(event_of("lost", {NodeId{4}}, 6, false)).ok());
  CHECK_FALSE(fs::exists(begun));
}

TEST_CASE("who joins and is lost as the job ends is not told to have joined", "[engine]") {
  const testing::ScratchFolder scratch;
  const fs::path begun = scratch / "run" / "begun_events.jsonl";
  auto folder = RunFolder::create(scratch / "run", "job").value();
  REQUIRE(folder.write_event(event_of("joined", {NodeId{4}}, 5, true)).ok());
  REQUIRE(folder.write_event(event_of("joined", {NodeId{2}}, 7, true)).ok());
  REQUIRE(folder.write_event(event_of("lost", {NodeId{4}, NodeId{2}}, 5, false)).ok());
  const std::string left = content(begun);  // Another process in place 2, later.
  CHECK(std::count(left.begin(), left.end(), '\n') == 1);
  CHECK_THAT(left, ContainsSubstring(R"("nodes":[2])"));
}

TEST_CASE("an event is over once the disk has its line", "[engine][errors]") {
  const testing::ScratchFolder scratch;
  const fs::path run = scratch / "run", begun = run / "begun_events.jsonl";
  auto folder = RunFolder::create(run, "job").value();
  REQUIRE(folder.write_event(event_of("lost", {NodeId{1}}, 2, true)).ok());
  fs::create_directory(run / "events.jsonl");  // A file that cannot be opened, for a moment.
  CHECK_FALSE(folder.write_event(event_of("lost", {NodeId{1}}, 2, false)).ok());
  CHECK(fs::exists(begun));
  CHECK_FALSE(folder.sync().ok());
  CHECK(fs::exists(begun));
  fs::remove(run / "events.jsonl");
  CHECK(folder.sync().ok());
  const std::string told = content(run / "events.jsonl");
  CHECK(std::count(told.begin(), told.end(), '\n') == 1);
  CHECK_FALSE(fs::exists(begun));  // Else the next head would tell of it once more.
}

TEST_CASE("a head that was replaced while it stood still replaces no file of the run",
          "[engine][takeover]") {
  const testing::ScratchFolder scratch;
  const fs::path run = scratch / "run", lock = lock_path(run);
  auto folder = RunFolder::create(run, "job").value();
  observe::RunEvent event;
  event.kind = "lost";
  event.is_under_way = true;
  ParallelPlan layout;
  layout.devices = {{NodeId{0}, 0}};
  const auto write_all = [&](std::int64_t step) {
    REQUIRE(folder.write_plan(layout, static_cast<EpochNumber>(step)).ok());
    REQUIRE(folder.write_memory({step, {}, {}}).ok());
    event.step = step;
    REQUIRE(folder.write_event(event).ok());
  };
  const auto own = RunLock::take(run).value();
  write_all(1);
  const auto plan = content(run / "plan.json"), begun = content(run / "begun_events.jsonl");
  REQUIRE_FALSE(begun.empty());
  REQUIRE(read_head_memory(run)->step == 1);

  // A process of another machine with this one's number, and another one of this machine.
  const auto host = lock_owner(run)->host;
  for (const std::string& other :
       {R"({"host":"elsewhere","process":)" + std::to_string(lock_owner(run)->process),
        R"({"host":")" + host + R"(","process":1)"}) {
    fs::remove(lock);
    std::ofstream(lock) << other << R"(,"since":"2026-11-29 10:00:00"})";
    write_all(2);
    CHECK(content(run / "plan.json") == plan);
    CHECK_FALSE(fs::exists(RunFolder::older_plan(run, 1)));
    CHECK(read_head_memory(run)->step == 1);
    CHECK(content(run / "begun_events.jsonl") == begun);
  }
  fs::remove(lock);  // By hand, which is borne.
  write_all(3);
  CHECK(read_head_memory(run)->step == 3);
  CHECK(content(run / "plan.json") != plan);
}

TEST_CASE("a rate that is not known is in no line", "[engine]") {
  const testing::ScratchFolder scratch;
  auto folder = RunFolder::create(scratch / "run", "job").value();
  observe::RunEvent event;
  event.samples_per_s_before = 12.5;
  event.decode_ms = 4;
  event.senders = 3;
  REQUIRE(folder.write_event(event).ok());
  const std::string line = content(scratch / "run" / "events.jsonl");
  CHECK_THAT(line, ContainsSubstring(R"("samples_per_s_before":12.5)") &&
                       !ContainsSubstring("samples_per_s_first"));
  CHECK_THAT(line, ContainsSubstring(R"("decode_ms":4.0)") && ContainsSubstring(R"("senders":3)"));
}

TEST_CASE("new and empty folders are fit for a run", "[engine]") {
  const testing::ScratchFolder scratch;
  CHECK(RunFolder::check(scratch / "new").ok());
  fs::create_directories(scratch / "empty");
  CHECK(RunFolder::check(scratch / "empty").ok());
  CHECK(RunFolder::create(scratch / "empty", "job").ok());
}

TEST_CASE("a run that was ended before its first line is no hindrance", "[engine]") {
  const testing::ScratchFolder scratch;
  fs::create_directories(scratch / "run" / "checkpoints");
  CHECK(RunFolder::check(scratch / "run").ok());
  std::ofstream(scratch / "run" / "resolved.toml") << "job";
  REQUIRE(RunFolder::create(scratch / "run", "again").ok());
  CHECK(content(scratch / "run" / "resolved.toml") == "again");
  // What a checkpoint would be is something.
  fs::create_directories(scratch / "other" / "checkpoints" / "step-1");
  CHECK_FALSE(RunFolder::check(scratch / "other").ok());
}

TEST_CASE("a link to a folder, and a slash at its end, mean the folder", "[engine]") {
  const testing::ScratchFolder scratch;
  fs::create_directories(scratch / "disk");
  fs::create_directory_symlink(scratch / "disk", scratch / "run");
  REQUIRE(RunFolder::create(scratch / "run", "first").ok());
  REQUIRE(RunFolder::create(scratch / "run/", "second").ok());
  CHECK(fs::is_symlink(scratch / "run"));
  CHECK(content(scratch / "run" / "resolved.toml") == "second");
  CHECK(content(scratch / "disk.1" / "resolved.toml") == "first");
}

TEST_CASE("a run is not moved from under the command that works in it", "[engine][errors]") {
  const testing::ScratchFolder scratch;
  REQUIRE(RunFolder::create(scratch / "run", "job").ok());
  CHECK(RunFolder::check(scratch / "run").ok());
  const auto before = fs::current_path();
  fs::current_path(scratch / "run" / "checkpoints");
  const auto refused = RunFolder::check(scratch / "run");
  fs::current_path(before);
  REQUIRE_FALSE(refused.ok());
  CHECK_THAT(refused.error().fix, ContainsSubstring("from another folder"));
}

}  // namespace
}  // namespace troupe::engine
