#include "tests/torch_catch.hpp"

#include "engine/run/continued_run.hpp"

#include <sys/stat.h>

#include <fstream>
#include <sstream>
#include <string>

#include "engine/layout/choose_layout.hpp"
#include "engine/run/run_folder.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/support/scratch_folder.hpp"

namespace troupe::engine {
namespace {

namespace fs = std::filesystem;

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void append(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::app) << text;
}

std::string steps(const char* before, int first, int last) {
  std::string lines;
  for (int step = first; step <= last; ++step)
    lines += std::string("{") + before + "\"step\":" + std::to_string(step) + "}\n";
  return lines;
}

ino_t number_of(const fs::path& path) {
  struct stat info {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  return info.st_ino;
}

/// A run that wrote six steps on its third layout, with a cut line behind them.
void write_run(const fs::path& run) {
  auto folder = RunFolder::create(run, "first job").value();
  const auto setup = prepare(tiny_job()).value();
  REQUIRE(folder.write_plan(make_parallel_plan(setup).value(), 3).ok());
  append(run / "metrics.jsonl", steps("\"loss\":1,", 1, 6) + "{\"step\":7,\"lo");
  append(run / "samples.jsonl", steps("\"ids\":[],", 1, 6));
  append(run / "iterations.jsonl", steps("", 1, 8));
  append(run / "events.jsonl", steps("\"kind\":\"layout\",", 4, 6));
  append(run / "bad_samples.jsonl", "{\"id\":\"early\"}\n{\"id\":\"late\"}\n");
  append(run / "trace.json", "the trace");
  fs::create_directories(run / "model");
  append(run / "model" / "model.safetensors", "the end");
}

TEST_CASE("who has a run's files open from before writes none of those that are there",
          "[engine]") {
  const testing::ScratchFolder scratch;
  const fs::path run = scratch / "run";
  auto older = RunFolder::create(run, "the job").value();
  observe::StepMetrics metrics;
  metrics.step = 1;
  REQUIRE(older.write_step(metrics, {"a"}).ok());
  std::ofstream log(run / RunFolder::kLogFile);
  log << "step 1" << std::endl;
  const auto before = content(run / "metrics.jsonl");
  REQUIRE_FALSE(before.empty());

  REQUIRE(renew_open_files(run).ok());
  metrics.step = 2;
  REQUIRE(older.write_step(metrics, {"b"}).ok());
  log << "step 2" << std::endl;
  CHECK(content(run / "metrics.jsonl") == before);
  CHECK(content(run / "samples.jsonl").find("\"b\"") == std::string::npos);
  CHECK(content(run / RunFolder::kLogFile) == "step 1\n");
  CHECK_FALSE(fs::exists(run / "events.jsonl"));  // What was not there is not made.
}

TEST_CASE("what follows the step that a run goes on from is laid aside, nothing is lost",
          "[engine]") {
  const testing::ScratchFolder scratch;
  const fs::path run = scratch / "run";
  write_run(run);
  CHECK(newest_generation(run) == 3);
  JobProgress progress;
  progress.step = 4;
  progress.bad = {{"early", 1}};
  {
    auto folder = RunFolder::resume(run, "second job", progress, 4, 3);
    REQUIRE(folder.ok());
    CHECK(folder.value().bad_count() == 1);
    observe::StepMetrics metrics;
    metrics.step = 5;
    REQUIRE(folder.value().write_step(metrics, {"a"}).ok());
    observe::RunEvent event;
    event.kind = "resumed";
    REQUIRE(folder.value().write_event(event).ok());
    const auto setup = prepare(tiny_job()).value();
    REQUIRE(folder.value().write_plan(make_parallel_plan(setup).value(), 4).ok());
  }
  const std::string metrics = content(run / "metrics.jsonl");
  CHECK(metrics.starts_with(steps("\"loss\":1,", 1, 4) + "{\"step\":5,"));
  CHECK(std::count(metrics.begin(), metrics.end(), '\n') == 5);
  CHECK(content(run / "superseded" / "metrics-3.jsonl") ==
        steps("\"loss\":1,", 5, 6) + "{\"step\":7,\"lo\n");
  CHECK(content(run / "superseded" / "samples-3.jsonl") == steps("\"ids\":[],", 5, 6));
  CHECK(content(run / "iterations.jsonl") == steps("", 1, 4));
  CHECK(content(run / "superseded" / "iterations-3.jsonl") == steps("", 5, 8));
  // An event of step 5 stands before step 5.
  CHECK(content(run / "events.jsonl").starts_with(steps("\"kind\":\"layout\",", 4, 5)));
  CHECK(content(run / "events.jsonl").find("resumed") != std::string::npos);
  CHECK(content(run / "bad_samples.jsonl") == "{\"id\":\"early\"}\n");
  CHECK(content(run / "superseded" / "bad_samples-3.jsonl") == "{\"id\":\"late\"}\n");
  CHECK(content(run / "resolved.toml") == "second job");
  CHECK(content(run / "resolved-3.toml") == "first job");
  CHECK(content(run / "trace-3.json") == "the trace");
  CHECK(content(run / "superseded" / "model-3" / "model.safetensors") == "the end");
  CHECK_FALSE(fs::exists(run / "model"));
  CHECK(newest_generation(run) == 4);
  CHECK(fs::exists(RunFolder::older_plan(run, 3)));
}

TEST_CASE("a second return adds to what was laid aside", "[engine]") {
  const testing::ScratchFolder scratch;
  const fs::path run = scratch / "run";
  write_run(run);
  JobProgress progress;
  for (const std::int64_t step : {5, 4}) {
    progress.step = step;
    REQUIRE(lay_aside(run, progress, step, 3).ok());
  }
  CHECK(content(run / "superseded" / "samples-3.jsonl") ==
        steps("\"ids\":[],", 6, 6) + steps("\"ids\":[],", 5, 5));
}

TEST_CASE("records of a step are whole where both files have it", "[engine]") {
  const testing::ScratchFolder scratch;
  const fs::path run = scratch / "run";
  CHECK(last_recorded_step(run) == 0);
  write_run(run);
  REQUIRE(last_recorded_step(run) == 6);  // The line of step 7 is cut.
  std::ofstream(run / "samples.jsonl") << steps("\"ids\":[],", 1, 4);
  CHECK(last_recorded_step(run) == 4);
  JobProgress progress;
  progress.step = 6;
  REQUIRE(lay_aside(run, progress, 4, 3).ok());
  CHECK(content(run / "metrics.jsonl") == steps("\"loss\":1,", 1, 4));
  CHECK(content(run / "iterations.jsonl") == steps("", 1, 6));
}

/// Longer than what is read of a file's end at first. Its first line is cut, to show whether
/// anybody looks there.
constexpr int kManySteps = 30000;
constexpr const char* kCutLine = "{\"st\n";

TEST_CASE("of the files of a long run the end is read and cut off, what was before is left alone",
          "[engine]") {
  const testing::ScratchFolder scratch;
  const fs::path run = scratch.path(), metrics = run / "metrics.jsonl";
  append(metrics, kCutLine + steps("\"loss\":1,", 1, kManySteps) + "{\"step\":30001,\"lo");
  append(run / "samples.jsonl", kCutLine + steps("\"ids\":[],", 1, kManySteps));
  REQUIRE(fs::file_size(metrics) > 600'000U);
  const auto before = number_of(metrics), samples_before = number_of(run / "samples.jsonl");
  CHECK(last_recorded_step(run) == kManySteps);
  JobProgress progress;
  progress.step = kManySteps;
  REQUIRE(lay_aside(run, progress, kManySteps - 10, 3).ok());
  CHECK((content(metrics) == kCutLine + steps("\"loss\":1,", 1, kManySteps - 10)));
  CHECK(content(run / "superseded" / "metrics-3.jsonl") ==
        steps("\"loss\":1,", kManySteps - 9, kManySteps) + "{\"step\":30001,\"lo\n");
  CHECK((content(run / "samples.jsonl") == kCutLine + steps("\"ids\":[],", 1, kManySteps - 10)));
  CHECK(number_of(metrics) == before);
  CHECK(number_of(run / "samples.jsonl") == samples_before);
}

TEST_CASE("a step far before the end of a long run is found too", "[engine]") {
  const testing::ScratchFolder scratch;
  const fs::path run = scratch.path();
  append(run / "samples.jsonl", steps("\"ids\":[],", 1, kManySteps));
  JobProgress progress;
  progress.step = 3;
  REQUIRE(lay_aside(run, progress, 3, 3).ok());
  CHECK(content(run / "samples.jsonl") == steps("\"ids\":[],", 1, 3));
  CHECK((content(run / "superseded" / "samples-3.jsonl") == steps("\"ids\":[],", 4, kManySteps)));
}

TEST_CASE("a step of a long run that was planned anew keeps both its lines", "[engine]") {
  const testing::ScratchFolder scratch;
  const fs::path run = scratch.path();
  const std::string all = kCutLine + steps("", 1, kManySteps);
  // Steps 30001 and 30002 were planned, then a node was lost.
  const int first = kManySteps + 1, second = kManySteps + 2;
  append(run / "iterations.jsonl", all + steps("", first, second) + steps("", first, second));
  JobProgress progress;
  progress.step = first;
  REQUIRE(lay_aside(run, progress, first, 3).ok());
  CHECK((content(run / "iterations.jsonl") ==
         all + steps("", first, first) + steps("", first, first)));
  CHECK(content(run / "superseded" / "iterations-3.jsonl") ==
        steps("", second, second) + steps("", second, second));
}

TEST_CASE("long files that do not ascend by step, or do not say it, are read whole", "[engine]") {
  const testing::ScratchFolder scratch;
  const fs::path run = scratch.path();
  std::string older_keys;
  for (int i = 0; i < kManySteps; ++i) older_keys += "{\"iteration\":7}\n";
  append(run / "metrics.jsonl",
         kCutLine + steps("", 1, kManySteps) + steps("", 60, 100) + steps("", 10001, 10003));
  append(run / "samples.jsonl", kCutLine + older_keys);
  append(run / "iterations.jsonl",
         kCutLine + steps("", 1, kManySteps) + "no object\n" + steps("", 1, 100));
  CHECK(last_recorded_step(run) == 0);  // Of the samples.
  JobProgress progress;
  progress.step = 10000;
  REQUIRE(lay_aside(run, progress, 10000, 3).ok());
  CHECK((content(run / "metrics.jsonl") == steps("", 1, 10000) + steps("", 60, 100)));
  CHECK((content(run / "superseded" / "metrics-3.jsonl") ==
         kCutLine + steps("", 10001, kManySteps) + steps("", 10001, 10003)));
  CHECK((content(run / "samples.jsonl") == older_keys));
  CHECK(content(run / "superseded" / "samples-3.jsonl") == kCutLine);
  CHECK((content(run / "iterations.jsonl") == steps("", 1, 10000) + steps("", 1, 100)));
}

TEST_CASE("a run without a plan has no generation", "[engine]") {
  const testing::ScratchFolder scratch;
  CHECK(newest_generation(scratch.path()) == 0);
  std::ofstream(scratch / "plan.json") << "{}";
  CHECK(newest_generation(scratch.path()) == 0);
}

}  // namespace
}  // namespace troupe::engine
