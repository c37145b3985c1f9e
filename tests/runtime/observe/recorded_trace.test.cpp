#include "runtime/observe/recorded_trace.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/observe/trace_writer.hpp"
#include "tests/runtime/observe/example_plan.hpp"
#include "tests/support/scratch_folder.hpp"

namespace troupe::observe {
namespace {

using Catch::Matchers::ContainsSubstring;
using testing::ScratchFolder;

TraceEvent event(std::int64_t step, EpochNumber epoch, ActionKind kind, int device,
                 std::int64_t begin_us) {
  TraceEvent made;
  made.device = DeviceId{device};
  made.step = step;
  made.epoch_number = epoch;
  made.action.kind = kind;
  made.begin_ns = begin_us * 1000;
  made.end_ns = (begin_us + 10) * 1000;
  return made;
}

// A forward and a message from device 0 to 1, then a reduction of devices 0 and 3.
std::vector<TraceEvent> step_events(std::int64_t step, EpochNumber epoch, std::int64_t at_us) {
  std::vector events{event(step, epoch, ActionKind::forward, 0, at_us),
                     event(step, epoch, ActionKind::send, 0, at_us + 10),
                     event(step, epoch, ActionKind::receive, 1, at_us + 12),
                     event(step, epoch, ActionKind::reduce_send, 3, at_us + 30),
                     event(step, epoch, ActionKind::reduce, 0, at_us + 40),
                     event(step, epoch, ActionKind::reduce_receive, 3, at_us + 50)};
  events[0].action.stage = StageId{0};
  events[0].action.microbatch = MicrobatchId{2};
  events[0].action.part = PartId{1};
  events[1].action.message = events[2].action.message = MessageId{0};
  for (std::size_t i = 3; i < 6; ++i) events[i].action.group = GroupId{0};
  return events;
}

std::filesystem::path write_trace(const ScratchFolder& folder,
                                  const std::vector<std::vector<TraceEvent>>& batches) {
  auto writer = TraceWriter::open(folder / "trace.json", 0).value();
  REQUIRE(writer.set_names(trace_names(testing::example_plan())).ok());
  for (const auto& batch : batches) REQUIRE(writer.write(batch).ok());
  REQUIRE(writer.write(TraceCounter{NodeId{0}, "queue", 5, 1}).ok());
  return folder / "trace.json";
}

TEST_CASE("a step read back is the timeline that was written", "[observe]") {
  const ScratchFolder folder;
  const auto path = write_trace(folder, {step_events(1, 1, 0), step_events(2, 1, 1000)});
  CHECK(steps_in_trace(path).value() == std::vector<std::int64_t>{1, 2});
  auto read = timeline_of_step(path, 2).value();
  const auto made = make_timeline(step_events(2, 1, 1000), trace_names(testing::example_plan()));
  // Stages that do nothing are not in a trace; lanes, times and links are.
  CHECK((read.lanes == made.lanes));
  REQUIRE(read.intervals.size() == made.intervals.size());
  for (std::size_t i = 0; i < made.intervals.size(); ++i) {
    // The file holds microseconds in decimals: times differ in the last bits.
    CHECK(std::abs(read.intervals[i].begin_ms - made.intervals[i].begin_ms) < 1e-9);
    CHECK(std::abs(read.intervals[i].end_ms - made.intervals[i].end_ms) < 1e-9);
    read.intervals[i].begin_ms = made.intervals[i].begin_ms;
    read.intervals[i].end_ms = made.intervals[i].end_ms;
  }
  CHECK((read.intervals == made.intervals));
  CHECK((read.links == made.links));
  CHECK(read.links.size() == 3);
}

TEST_CASE("a step that ran twice is shown as it ended", "[observe]") {
  const ScratchFolder folder;
  const auto path = write_trace(folder, {step_events(1, 1, 0), step_events(1, 2, 500)});
  const auto read = timeline_of_step(path, 1).value();
  CHECK(read.intervals.size() == 6);
  CHECK(read.links.size() == 3);
  CHECK(read.intervals.front().begin_ms == 0);
  CHECK_THAT(read.note, ContainsSubstring("last attempt"));
}

TEST_CASE("what happened before a step is a mark of its timeline and trace", "[observe]") {
  const ScratchFolder folder;
  const auto path = write_trace(folder, {step_events(1, 1, 0), step_events(2, 2, 1000)});
  {
    // As a later call of the writer leaves them: behind the slices, by when they were told.
    std::ifstream file(path);
    std::string text{std::istreambuf_iterator<char>(file), {}};
    const std::string mark = R"({"ph":"i","s":"g","pid":1,"tid":1,"name":)";
    text.replace(text.find("\n]"), std::string::npos,
                 ",\n" + mark + R"("joined: node 3","ts":1005.0,)" +
                     R"("args":{"step":2,"kind":"joined","why":""}},)" + "\n" + mark +
                     R"("lost: node 2","ts":400.0,)" +
                     R"("args":{"step":2,"kind":"lost","why":"it was killed"}},)" + "\n" + mark +
                     R"("layout","ts":2000.0,"args":{"step":3,"kind":"layout","why":""}},)" + "\n" +
                     mark + R"("of another version","ts":900.0})" + "\n]\n");
    std::ofstream(path) << text;
  }
  const auto timeline = timeline_of_step(path, 2).value();
  // The step's first action begins at 1 ms.
  REQUIRE(timeline.marks.size() == 2);
  CHECK(std::abs(timeline.marks[0].at_ms + 0.6) < 1e-9);
  CHECK(timeline.marks[0].name == "lost: node 2");
  CHECK(timeline.marks[0].kind == "lost");
  CHECK(timeline.marks[0].why == "it was killed");
  CHECK(std::abs(timeline.marks[1].at_ms - 0.005) < 1e-9);
  CHECK(timeline_of_step(path, 1).value().marks.empty());
  int marks = 0;
  for (const auto& entry : nlohmann::json::parse(trace_of_step(path, 2).value()))
    if (entry["ph"] == "i") ++marks;
  CHECK(marks == 2);
}

TEST_CASE("the trace of a step has its slices, arrows and names alone", "[observe]") {
  const ScratchFolder folder;
  const auto path = write_trace(folder, {step_events(1, 1, 0), step_events(2, 1, 1000)});
  std::map<std::string, int> count;
  for (const auto& entry : nlohmann::json::parse(trace_of_step(path, 2).value()))
    ++count[entry["ph"].get<std::string>()];
  // Names of four devices; both ends of three arrows.
  CHECK((count == std::map<std::string, int>{{"M", 12}, {"X", 6}, {"s", 3}, {"f", 3}}));
}

TEST_CASE("a trace whose end is cut is read up to there", "[observe]") {
  const ScratchFolder folder;
  const auto path = write_trace(folder, {step_events(1, 1, 0)});
  std::ifstream file(path);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  std::ofstream(path) << text.substr(0, text.size() - 30);
  CHECK(timeline_of_step(path, 1).value().intervals.size() == 6);
}

TEST_CASE("a trace that grows while it is read ends at its bracket", "[observe]") {
  const ScratchFolder folder;
  const auto path = write_trace(folder, {step_events(1, 1, 0)});
  // The bracket was read, then overwritten: what follows is the rest of an entry, and more.
  std::ofstream(path, std::ios::app) << R"("pid":1,"args":{"step":2}},)"
                                     << "\n{}\n]\n";
  CHECK(steps_in_trace(path).value() == std::vector<std::int64_t>{1});
}

TEST_CASE("a stage whose name is nested without end has none", "[observe][errors]") {
  const ScratchFolder folder;
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  std::ofstream(folder / "trace.json")
      << "[\n"
      << R"({"ph":"X","pid":1,"tid":1,"ts":0,"dur":1,"args":{"step":1,"kind":"forward",)"
      << R"("stage":)" << deep << "}},\n]\n";
  const auto read = timeline_of_step(folder / "trace.json", 1);
  REQUIRE(read.ok());
  CHECK(read.value().stages == std::vector<std::string>{"stage"});
}

TEST_CASE("a trace that is missing, foreign or without the step is refused", "[observe][errors]") {
  const ScratchFolder folder;
  CHECK(steps_in_trace(folder / "nowhere.json").error().code == Errc::not_found);
  const auto path = write_trace(folder, {step_events(1, 1, 0), step_events(4, 1, 100)});
  const auto missing = timeline_of_step(path, 3);
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().code == Errc::not_found);
  CHECK_THAT(missing.error().message,
             ContainsSubstring("step 3") && ContainsSubstring("1 to 4, the nearest are 1 and 4"));
  CHECK(trace_of_step(path, 3).error().code == Errc::not_found);
  for (const auto* text : {"{}\n", "[\nhello\n]\n", "[\n{\"ph\":\"X\"},\n]\n",
                           "[\n{\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":0,\"dur\":1,\"args\":"
                           "{\"step\":1,\"kind\":\"dance\"}}\n]\n"}) {
    CAPTURE(text);
    std::ofstream(folder / "other.json") << text;
    const auto read = timeline_of_step(folder / "other.json", 1);
    REQUIRE_FALSE(read.ok());
    CHECK(read.error().code == Errc::bad_data);
    CHECK_THAT(read.error().where, ContainsSubstring("other.json:"));
  }
}

}  // namespace
}  // namespace troupe::observe
