#include "runtime/observe/trace_writer.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/runtime/observe/example_plan.hpp"
#include "tests/support/scratch_folder.hpp"

namespace troupe::observe {
namespace {

using Json = nlohmann::json;
using testing::ScratchFolder;

// Throws, and so fails the test, where the file is not valid JSON.
Json read(const std::filesystem::path& path) {
  std::ifstream file(path);
  return Json::parse(file);
}

TraceEvent event(ActionKind kind, int device, std::int64_t begin, std::int64_t end) {
  TraceEvent made;
  made.device = DeviceId{device};
  made.step = 7;
  made.action.kind = kind;
  made.begin_ns = begin;
  made.end_ns = end;
  return made;
}

TraceEvent of_message(ActionKind kind, int device, std::int64_t begin, std::int64_t end) {
  auto made = event(kind, device, begin, end);
  made.action.message = MessageId{0};
  return made;
}

TraceEvent of_group(ActionKind kind, int device, std::int64_t begin, std::int64_t end) {
  auto made = event(kind, device, begin, end);
  made.action.group = GroupId{1};
  return made;
}

TEST_CASE("the file is valid JSON after every call", "[observe]") {
  const ScratchFolder folder;
  auto writer = TraceWriter::open(folder / "run/trace.json", 1000);
  REQUIRE(writer.ok());
  CHECK(read(folder / "run/trace.json").empty());
  REQUIRE(writer.value().set_names(trace_names(testing::example_plan())).ok());
  // Four devices on three nodes: process name, order and track name each.
  CHECK(read(folder / "run/trace.json").size() == 12);
  REQUIRE(writer.value().write(std::vector<TraceEvent>{}).ok());
  CHECK(read(folder / "run/trace.json").size() == 12);
  for (std::size_t i = 1; i <= 5; ++i) {
    const std::vector events{event(ActionKind::commit, 0, 2000, 3000)};
    REQUIRE(writer.value().write(events).ok());
    CHECK(read(folder / "run/trace.json").size() == 12 + i);
  }
  REQUIRE(writer.value().write(TraceCounter{NodeId{1}, "bytes \"x\"", 1500, 2.5}).ok());
  REQUIRE(writer.value()
              .write(TraceCounter{NodeId{1}, "n", 1500, std::numeric_limits<double>::quiet_NaN()})
              .ok());
  REQUIRE(writer.value().write(TraceMark{NodeId{0}, "node 2 lost\n", 1600}).ok());
  REQUIRE(writer.value().write(TraceMark{NodeId{0}, "a\\b \xC3\xA9", 1700}).ok());
  const auto json = read(folder / "run/trace.json");
  CHECK(json[17] == Json{{"ph", "C"},
                         {"pid", 2},
                         {"ts", 0.5},
                         {"name", "bytes \"x\""},
                         {"args", {{"value", 2.5}}}});
  CHECK(json[18]["args"]["value"].is_null());
  CHECK(json[19]["name"] == "node 2 lost\n");
  CHECK(json[20]["name"] == "a\\b \xC3\xA9");
}

TEST_CASE("a slice says what ran, where, when and for which step", "[observe]") {
  const ScratchFolder folder;
  auto writer = TraceWriter::open(folder / "t.json", 1'000'000).value();
  REQUIRE(writer.set_names(trace_names(testing::example_plan())).ok());
  auto forward = event(ActionKind::forward, 2, 1'002'500, 1'004'001);
  forward.action.stage = StageId{2};
  forward.action.microbatch = MicrobatchId{3};
  forward.cpu_ns = 1'200;
  REQUIRE(writer.write(std::vector{forward}).ok());
  const auto slice = read(folder / "t.json").back();
  CHECK(slice == Json{{"ph", "X"},
                      {"pid", 2},
                      {"tid", 2},
                      {"ts", 2.5},
                      {"dur", 1.501},
                      {"tdur", 1.2},
                      {"name", "llm.stage1 F mb3"},
                      {"cat", "compute"},
                      {"args",
                       {{"kind", "forward"},
                        {"step", 7},
                        {"epoch_number", 0},
                        {"stage", "llm.stage1"},
                        {"stage_id", 2},
                        {"microbatch", 3},
                        {"part", -1}}}});
}

TEST_CASE("a mark of the whole job has global scope, its step and its reason", "[observe]") {
  const ScratchFolder folder;
  auto writer = TraceWriter::open(folder / "t.json", 1'000'000).value();
  REQUIRE(
      writer.write(TraceMark{NodeId{}, "lost: node 2", 1'002'500, 7, "lost", "no \"sign\""}).ok());
  REQUIRE(writer.write(TraceMark{NodeId{3}, "out of room", 1'003'000}).ok());
  const auto json = read(folder / "t.json");
  CHECK(json[0] == Json{{"ph", "i"},
                        {"s", "g"},
                        {"pid", 1},
                        {"tid", 1},
                        {"ts", 2.5},
                        {"name", "lost: node 2"},
                        {"cat", "event"},
                        {"args", {{"step", 7}, {"kind", "lost"}, {"why", "no \"sign\""}}}});
  CHECK(
      json[1] ==
      Json{{"ph", "i"}, {"s", "p"}, {"pid", 4}, {"tid", 1}, {"ts", 3.0}, {"name", "out of room"}});
}

TEST_CASE("reconfiguration announces only new tracks", "[observe]") {
  const ScratchFolder folder;
  auto writer = TraceWriter::open(folder / "t.json", 0).value();
  auto names = trace_names(testing::example_plan());
  REQUIRE(writer.set_names(names).ok());
  names.devices.push_back({NodeId{5}, 0});
  REQUIRE(writer.set_names(names).ok());
  CHECK(read(folder / "t.json").size() == 15);
}

// Arrow ids by phase.
std::map<std::uint64_t, std::string> arrows(const Json& json) {
  std::map<std::uint64_t, std::string> found;
  for (const auto& entry : json)
    if (entry["ph"] == "s" || entry["ph"] == "f")
      found[entry["id"].get<std::uint64_t>()] += entry["ph"].get<std::string>();
  return found;
}

TEST_CASE("an arrow joins each send with its receive, rows and gradients apart", "[observe]") {
  const ScratchFolder folder;
  auto writer = TraceWriter::open(folder / "t.json", 0).value();
  REQUIRE(writer.set_names(trace_names(testing::example_plan())).ok());
  REQUIRE(writer
              .write(std::vector{of_message(ActionKind::send, 0, 100, 110),
                                 of_message(ActionKind::receive_gradient, 0, 110, 900)})
              .ok());
  REQUIRE(writer
              .write(std::vector{of_message(ActionKind::receive, 1, 50, 300),
                                 of_message(ActionKind::send_gradient, 1, 500, 510)})
              .ok());
  auto other_step = of_message(ActionKind::send, 0, 1000, 1010);
  other_step.step = 8;
  REQUIRE(writer.write(std::vector{other_step}).ok());
  const auto found = arrows(read(folder / "t.json"));
  REQUIRE(found.size() == 3);
  int joined = 0, single = 0;
  for (const auto& [id, phases] : found) {
    joined += phases.size() == 2 ? 1 : 0;
    single += phases == "s" ? 1 : 0;
    CHECK(id < (std::uint64_t{1} << 53));
  }
  CHECK(joined == 2);
  CHECK(single == 1);
}

TEST_CASE("an arrow joins content that is sent with where it comes", "[observe]") {
  const ScratchFolder folder;
  auto writer = TraceWriter::open(folder / "t.json", 0).value();
  auto send = event(ActionKind::send_content, 0, 100, 110);
  auto receive = event(ActionKind::receive_content, 1, 50, 300);
  send.action.delivery = receive.action.delivery = DeliveryId{0};
  // A message of the same number is another arrow.
  REQUIRE(writer.write(std::vector{send, receive, of_message(ActionKind::send, 0, 120, 130)}).ok());
  const auto found = arrows(read(folder / "t.json"));
  REQUIRE(found.size() == 2);
  int joined = 0;
  for (const auto& [id, phases] : found) joined += phases.size() == 2 ? 1 : 0;
  CHECK(joined == 1);
}

TEST_CASE("a reduction has an arrow from and to every other device", "[observe]") {
  // Group 1: devices 1, 2 (which owns its only chunk) and 3. So 2 arrows in and 2 out.
  const ScratchFolder folder;
  auto writer = TraceWriter::open(folder / "t.json", 0).value();
  REQUIRE(writer.set_names(trace_names(testing::example_plan())).ok());
  REQUIRE(writer
              .write(std::vector{of_group(ActionKind::reduce_send, 1, 10, 20),
                                 of_group(ActionKind::reduce_send, 3, 10, 20),
                                 of_group(ActionKind::reduce, 2, 10, 40),
                                 of_group(ActionKind::reduce_receive, 1, 20, 50),
                                 of_group(ActionKind::reduce_receive, 3, 20, 50)})
              .ok());
  const auto found = arrows(read(folder / "t.json"));
  CHECK(found.size() == 4);
  for (const auto& [id, phases] : found) CHECK(phases.size() == 2);
}

TEST_CASE("a device the plan lacks and times before the origin are drawn, not lost", "[observe]") {
  const ScratchFolder folder;
  auto writer = TraceWriter::open(folder / "t.json", 5000).value();
  REQUIRE(writer.write(std::vector{event(ActionKind::commit, 4, 1000, 7000)}).ok());
  const auto slice = read(folder / "t.json").back();
  CHECK(slice["pid"] == 0);
  CHECK(slice["tid"] == 5);
  CHECK(slice["ts"] == 0);
}

TEST_CASE("a trace that cannot be created is an error", "[observe][errors]") {
  const ScratchFolder folder;
  std::ofstream(folder / "file") << "x";
  const auto writer = TraceWriter::open(folder / "file/trace.json", 0);
  REQUIRE_FALSE(writer.ok());
  CHECK(writer.error().code == Errc::io_failed);
}

}  // namespace
}  // namespace troupe::observe
