#include "app/replay/failure_trace.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <set>

namespace troupe::app {
namespace {

using Catch::Matchers::ContainsSubstring;
using scheduler::NodeEvent;

TEST_CASE("changes of nodes become events", "[app]") {
  const auto read =
      parse_failure_trace("0,add,a\n0,add,b\n\n10,remove,a\n10,remove,b\n10,add,a\r\n20,add,c\n",
                          "t.csv", TraceFormat::changes);
  REQUIRE(read.ok());
  const auto& trace = read.value();
  // a is 0, b is 1, c is 2; two leave at 10, and a comes back at once.
  CHECK((trace.nodes == scheduler::RankList{0, 1}));
  const std::vector<NodeEvent> events{{10, {0, 1}, {}}, {10, {}, {0}}, {20, {}, {2}}};
  CHECK((trace.events == events));
  CHECK(trace.end_ms == 20);
  CHECK(trace.peak_nodes == 2);
}

TEST_CASE("a count that goes back in time replaces what was said", "[app]") {
  // 12:00 has 3 nodes; 12:01 and 12:02 were announced with 3, then 12:01 turned out to have 1.
  const auto read = parse_failure_trace(
      "2021-12-31, 23:59:00, 3\n2022-01-01, 00:00:00, 3\n2022-01-01, 00:01:00, 3\n"
      "2022-01-01, 00:00:00, 1\n2022-01-01, 00:03:00, 2\n",
      "t.txt", TraceFormat::counts, 7);
  REQUIRE(read.ok());
  const auto& trace = read.value();
  CHECK((trace.nodes == scheduler::RankList{0, 1, 2}));
  REQUIRE(trace.events.size() == 2);
  CHECK(trace.events[0].time_ms == 60'000);
  CHECK(trace.events[0].lost.size() == 2);
  CHECK((trace.events[1] == NodeEvent{240'000, {}, {3}}));
  CHECK(trace.end_ms == 240'000);
  CHECK(trace.peak_nodes == 3);
}

TEST_CASE("a malformed line is named", "[app][errors]") {
  const auto refused = [](const std::string& text, TraceFormat format, const std::string& where,
                          const std::string& says) {
    CAPTURE(text);
    const auto read = parse_failure_trace(text, "t", format);
    REQUIRE_FALSE(read.ok());
    CHECK(read.error().code == Errc::bad_data);
    CHECK(read.error().where == where);
    CHECK_THAT(read.error().message, ContainsSubstring(says));
    CHECK_FALSE(read.error().fix.empty());
  };
  const auto changes = TraceFormat::changes, counts = TraceFormat::counts;
  refused("", changes, "t:1", "no line");
  refused("0,add,a\n\n5,add\n", changes, "t:3", "expected 3 fields, found 2");
  refused("0,add,a,b\n", changes, "t:1", "found 4");
  refused("x,add,a\n", changes, "t:1", "found 'x'");
  refused("1s,add,a\n", changes, "t:1", "found '1s'");
  refused("-1,add,a\n", changes, "t:1", "found '-1'");
  refused("nan,add,a\n", changes, "t:1", "found 'nan'");
  refused("1e300,add,a\n", changes, "t:1", "1e300");
  refused("0,add,a\n5,added,b\n", changes, "t:2", "found 'added'");
  refused("5,add,a\n4,add,b\n", changes, "t:2", "before that of the line above");
  refused("0,add,a\n1,add,a\n", changes, "t:2", "a is there already");
  refused("0,add,a\n1,remove,b\n", changes, "t:2", "b is not there");
  refused("0,add,\n", changes, "t:1", "no name");
  refused(" \n\n", counts, "t:1", "no line");
  refused("2021-12-10, 13:07:45\n", counts, "t:1", "found 2");
  refused("2021-02-30, 13:07:45, 1\n", counts, "t:1", "2021-02-30");
  refused("2021-12-10, 24:07:45, 1\n", counts, "t:1", "24:07:45");
  refused("2021-12-10, 13:07, 1\n", counts, "t:1", "13:07'");
  refused("2021-12-10, 13:07:45, -1\n", counts, "t:1", "found '-1'");
  refused("2021-12-10, 13:07:45, 1.5\n", counts, "t:1", "found '1.5'");
  refused("2021-12-10, 13:07:45, 9999999\n", counts, "t:1", "found '9999999'");
}

TEST_CASE("a trace file must exist and say its format", "[app][errors]") {
  CHECK(read_failure_trace("no-such.csv").error().code == Errc::not_found);
  CHECK(read_failure_trace("no-such.json").error().code == Errc::invalid_argument);
}

TEST_CASE("the recorded traces can be played", "[app]") {
  const std::string file =
      GENERATE("p3-trace.csv", "g4dn-trace.csv", "a100x1-east1b.txt", "v100x1-east1c.txt");
  CAPTURE(file);
  const std::filesystem::path path = "../shared/data/spot-traces/" + file;
  if (!std::filesystem::exists(path)) SKIP("the recorded traces are not here: " + path.string());
  const auto read = read_failure_trace(path, 3);
  REQUIRE(read.ok());
  const auto& trace = read.value();
  std::set<std::int64_t> alive(trace.nodes.begin(), trace.nodes.end());
  double before = 0;
  std::size_t peak = alive.size();
  for (const auto& event : trace.events) {
    CHECK(event.time_ms >= before);
    before = event.time_ms;
    for (const auto node : event.lost) CHECK(alive.erase(node) == 1);
    for (const auto node : event.joined) CHECK(alive.insert(node).second);
    peak = std::max(peak, alive.size());
  }
  CHECK(static_cast<std::int64_t>(peak) == trace.peak_nodes);
  CHECK(before <= trace.end_ms);
  CHECK(trace.end_ms > 3'600'000);
}

}  // namespace
}  // namespace troupe::app
