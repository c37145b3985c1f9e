#include "runtime/observe/trace_summary.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>

#include "runtime/observe/trace_writer.hpp"
#include "tests/runtime/observe/example_plan.hpp"
#include "tests/support/scratch_folder.hpp"

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

namespace troupe::observe {
namespace {

using testing::ScratchFolder;

constexpr std::int64_t kMs = 1'000'000;

TraceEvent event(std::int64_t step, ActionKind kind, int device, int stage, std::int64_t begin_ms,
                 std::int64_t end_ms) {
  TraceEvent made;
  made.device = DeviceId{device};
  made.step = step;
  made.action = {kind, StageId{stage}, MicrobatchId{0}, PartId{0}, MessageId{}, GroupId{}};
  if (kind == ActionKind::send || kind == ActionKind::receive) made.action.message = MessageId{0};
  made.begin_ns = begin_ms * kMs;
  made.end_ns = end_ms * kMs;
  return made;
}

TEST_CASE("a written trace is summarised by hand", "[observe]") {
  // Step 1: device 0 works [0, 4), device 1 waits [0, 5) and works [5, 10). Step 2: device 0 works
  // [20, 22). Spans 10 + 2 = 12 ms, two devices: room 24; work 4 + 5 + 2 = 11. Stage work 6 and 5.
  const ScratchFolder folder;
  auto writer = TraceWriter::open(folder / "t.json", 0).value();
  REQUIRE(writer.set_names(trace_names(testing::example_plan())).ok());
  REQUIRE(writer
              .write(std::vector{event(1, ActionKind::forward, 0, 0, 0, 4),
                                 event(1, ActionKind::send, 0, 0, 4, 5),
                                 event(1, ActionKind::receive, 1, 1, 0, 5),
                                 event(1, ActionKind::backward, 1, 1, 5, 10),
                                 event(1, ActionKind::optimizer_step, 1, 1, 10, 13),
                                 event(2, ActionKind::forward, 0, 0, 20, 22)})
              .ok());
  const auto read = summarize_trace(folder / "t.json");
  REQUIRE(read.ok());
  const auto& summary = read.value();
  CHECK(summary.step_count == 2);
  CHECK(summary.slice_count == 6);
  CHECK(summary.arrow_count == 1);
  CHECK_THAT(summary.span_ms, WithinRel(12.0, 1e-9));
  CHECK_THAT(summary.bubble, WithinRel(1 - 11.0 / 24, 1e-9));
  CHECK_THAT(summary.imbalance, WithinRel(6 / 5.5, 1e-9));
  REQUIRE(summary.devices.size() == 2);
  CHECK_THAT(summary.devices[0].compute_ms, WithinRel(6.0, 1e-9));
  CHECK_THAT(summary.devices[1].wait_ms, WithinRel(5.0, 1e-9));
  CHECK_THAT(summary.devices[1].update_ms, WithinRel(3.0, 1e-9));
  REQUIRE(summary.stages.size() == 2);
  CHECK(summary.stages[1].name == "llm.stage0");
  CHECK(summary.stages[1].node == 1);
  const auto text = to_text(summary);
  CHECK_THAT(text, ContainsSubstring("bubble 54.2 %"));
  CHECK_THAT(text, ContainsSubstring("llm.stage0"));
}

TEST_CASE("an empty trace has nothing to say and no division by zero", "[observe]") {
  const ScratchFolder folder;
  REQUIRE(TraceWriter::open(folder / "t.json", 0).ok());
  const auto summary = summarize_trace(folder / "t.json");
  REQUIRE(summary.ok());
  CHECK(summary.value().bubble == 0);
  CHECK(summary.value().imbalance == 1);
}

TEST_CASE("files that are no trace are refused", "[observe][errors]") {
  const ScratchFolder folder;
  CHECK(summarize_trace(folder / "none").error().code == Errc::not_found);
  for (const char* text : {"", "{}", "[", "[{}]", "[{\"ph\":\"X\"}]", "[{\"ph\":1}]", "[3]",
                           "[{\"ph\":\"s\",\"id\":\"x\"}]"}) {
    std::ofstream(folder / "t.json") << text;
    const auto summary = summarize_trace(folder / "t.json");
    CAPTURE(text);
    REQUIRE_FALSE(summary.ok());
    CHECK(summary.error().code == Errc::bad_data);
  }
}

}  // namespace
}  // namespace troupe::observe
