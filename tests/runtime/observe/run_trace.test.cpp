#include "runtime/observe/run_trace.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <csignal>
#include <fstream>
#include <numeric>
#include <thread>

#include <nlohmann/json.hpp>

#include "runtime/observe/recorded_trace.hpp"
#include "tests/support/scratch_folder.hpp"

namespace troupe::observe {
namespace {

using testing::ScratchFolder;
using Steps = std::vector<std::int64_t>;

std::vector<TraceEvent> events_of(std::int64_t step, int count, std::int64_t begin_ns) {
  std::vector<TraceEvent> events(static_cast<std::size_t>(count));
  for (auto& event : events) {
    event.device = DeviceId{0};
    event.step = step;
    event.action.kind = ActionKind::forward;
    event.begin_ns = begin_ns;
    event.end_ns = begin_ns + 500;
    begin_ns += 1000;
  }
  return events;
}

TraceNames one_device() {
  TraceNames names;
  names.devices = {{NodeId{0}, 0}};
  return names;
}

/// Writes steps [begin, end] of `count` actions each, predicted as long as measured.
void write_steps(RunTrace& trace, std::int64_t begin, std::int64_t end, int count) {
  for (auto step = begin; step <= end; ++step)
    REQUIRE(trace.write(events_of(step, count, 1'000'000 * step), events_of(step, count, 0)).ok());
}

Steps steps_of(const std::filesystem::path& path) { return steps_in_trace(path).value(); }

bool has_all(const Steps& steps, std::int64_t begin, std::int64_t end) {
  for (auto step = begin; step <= end; ++step)
    if (!std::binary_search(steps.begin(), steps.end(), step)) return false;
  return true;
}

bool is_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  return nlohmann::json::accept(file);
}

std::map<std::int64_t, std::int64_t> same_size(std::int64_t steps, std::int64_t bytes) {
  std::map<std::int64_t, std::int64_t> sizes;
  for (std::int64_t step = 1; step <= steps; ++step) sizes[step] = bytes;
  return sizes;
}

Steps kept_of(const std::map<std::int64_t, std::int64_t>& sizes, std::int64_t stride,
              const TraceLimits& limits) {
  const auto wanted = kept_steps(sizes, stride, limits);
  Steps kept;
  for (const auto& [step, size] : sizes)
    if (wanted(step)) kept.push_back(step);
  return kept;
}

TEST_CASE("marks stay where steps are thinned", "[observe]") {
  const ScratchFolder folder;
  auto trace = RunTrace::open(folder.path(), 0, {20'000, 2, 2}).value();
  REQUIRE(trace.set_names(one_device()).ok());
  REQUIRE(trace.mark({NodeId{}, "lost: node 2", 1'000'000, 2, "lost", ""}).ok());
  write_steps(trace, 1, 60, 4);
  REQUIRE(trace.stride() > 1);
  // Of the second step, which is one of the first ones.
  CHECK(timeline_of_step(folder / "trace.json", 2).value().marks.size() == 1);
}

TEST_CASE("a trace keeps first and last steps, and every n-th between", "[observe]") {
  // By hand: 20 steps of 10 bytes, 3 first and 2 last ones take 50. 5/8 of 200 leave 75 for the
  // fifteen between, steps 4 to 18: every 2nd are 8, too many; every 4th are 4, 8, 12 and 16.
  const TraceLimits limits{200, 3, 2};
  const auto sizes = same_size(20, 10);
  CHECK(stride_for(sizes, 1, limits) == 4);
  CHECK(kept_of(sizes, 4, limits) == Steps{1, 2, 3, 4, 8, 12, 16, 19, 20});
  // A stride never shrinks, so that what is kept stays evenly spaced.
  CHECK(stride_for(sizes, 8, limits) == 8);
  CHECK(stride_for(same_size(8, 10), 1, limits) == 1);
}

TEST_CASE("first and last steps stay where they alone are too large", "[observe]") {
  // By hand: 5 x 100 bytes stay; between, a quarter of those, one step of 100: every 16th.
  const TraceLimits limits{200, 3, 2};
  const auto sizes = same_size(20, 100);
  CHECK(stride_for(sizes, 1, limits) == 16);
  CHECK(kept_of(sizes, 16, limits) == Steps{1, 2, 3, 16, 19, 20});
  const auto few = same_size(5, 1000);
  CHECK(stride_for(few, 1, limits) == 1);
  CHECK(kept_of(few, 1, limits) == Steps{1, 2, 3, 4, 5});
}

TEST_CASE("a run of any length has its first hundred and last twenty steps in the trace",
          "[observe][property]") {
  const auto count = GENERATE(1, 7, 40);
  const ScratchFolder folder;
  const TraceLimits limits{400'000};
  auto trace = RunTrace::open(folder.path(), 0, limits).value();
  REQUIRE(trace.set_names(one_device()).ok());
  const auto measured = folder / "trace.json", predicted = folder / "predicted.json";
  std::uintmax_t largest = 0;
  for (std::int64_t step = 1; step <= 3000; ++step) {
    write_steps(trace, step, step, count);
    largest = std::max(largest, file_size(measured) + file_size(predicted));
    if (step % 97 != 0) continue;
    const auto steps = steps_of(measured);
    REQUIRE(has_all(steps, 1, std::min<std::int64_t>(step, 100)));
    REQUIRE(has_all(steps, std::max<std::int64_t>(step - 19, 1), step));
    for (auto kept = trace.stride(); kept <= step; kept += trace.stride())
      REQUIRE(std::binary_search(steps.begin(), steps.end(), kept));
    REQUIRE(steps == steps_of(predicted));
    REQUIRE((is_json(measured) && is_json(predicted)));
  }
  const auto step_bytes = file_size(measured) / steps_of(measured).size() * 2;
  CHECK(largest <= std::max<std::uintmax_t>(400'000, 240 * step_bytes) + 2 * step_bytes);
  CHECK(trace.stride() > 1);
  CHECK(steps_of(measured).size() >= 130);
}

TEST_CASE("a run that fits has all of its steps", "[observe]") {
  const ScratchFolder folder;
  auto trace = RunTrace::open(folder.path(), 0).value();
  REQUIRE(trace.set_names(one_device()).ok());
  write_steps(trace, 1, 2500, 10);
  CHECK(trace.stride() == 1);
  CHECK(steps_of(folder / "trace.json").size() == 2500);
}

TEST_CASE("what is kept is as it was written", "[observe]") {
  const ScratchFolder folder;
  auto writer = TraceWriter::open(folder / "t.json", 0).value();
  REQUIRE(writer.set_names(one_device()).ok());
  // More than is copied at once, and a call with two steps in it.
  std::vector<TraceEvent> events = events_of(1, 9000, 0);
  const auto second = events_of(2, 3, 9'000'000);
  events.insert(events.end(), second.begin(), second.end());
  REQUIRE(writer.write(events).ok());
  REQUIRE(writer.write(TraceMark{NodeId{0}, "reconfigured", 10}).ok());
  REQUIRE(writer.write(events_of(3, 2, 10'000'000)).ok());
  const auto one = trace_of_step(folder / "t.json", 1).value();
  const auto three = trace_of_step(folder / "t.json", 3).value();

  REQUIRE(writer.keep([](std::int64_t step) { return step == 1 || step == 3; }).ok());
  CHECK(steps_of(folder / "t.json") == Steps{1, 3});
  CHECK(trace_of_step(folder / "t.json", 1).value() == one);
  CHECK(trace_of_step(folder / "t.json", 3).value() == three);
  REQUIRE(writer.write(events_of(4, 2, 11'000'000)).ok());
  CHECK(steps_of(folder / "t.json") == Steps{1, 3, 4});
  std::ifstream file(folder / "t.json");
  const auto json = nlohmann::json::parse(file);
  CHECK(std::count_if(json.begin(), json.end(), [](const auto& x) { return x["ph"] == "i"; }) == 1);
  CHECK(std::count_if(json.begin(), json.end(), [](const auto& x) { return x["ph"] == "M"; }) == 3);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("a trace whose names alone remain is still one", "[observe]") {
  const ScratchFolder folder;
  auto writer = TraceWriter::open(folder / "t.json", 0).value();
  REQUIRE(writer.write(events_of(1, 2, 0)).ok());
  REQUIRE(writer.keep([](std::int64_t) { return false; }).ok());
  CHECK(is_json(folder / "t.json"));
  REQUIRE(writer.write(events_of(2, 2, 0)).ok());
  CHECK(is_json(folder / "t.json"));
  CHECK(steps_of(folder / "t.json") == Steps{2});
}

TEST_CASE("a process killed while it thins leaves a whole trace", "[observe][property]") {
  const auto seed = GENERATE(range(0, 6));
  const ScratchFolder folder;
  const auto child = ::fork();
  if (child == 0) {
    // So little room that it is thinned every few dozen steps.
    auto trace = RunTrace::open(folder.path(), 0, {60'000, 20, 20}).value();
    (void)trace.set_names(one_device());
    for (std::int64_t step = 1;; ++step) {
      const auto done = trace.write(events_of(step, 4, 1000 * step), events_of(step, 4, 0));
      if (!done.ok()) ::_exit(1);
    }
  }
  REQUIRE(child > 0);
  const auto path = folder / "trace.json";
  const auto size = [&] {
    std::error_code ignored;
    const auto bytes = std::filesystem::file_size(path, ignored);
    return ignored ? 0 : bytes;
  };
  while (size() < 20'000) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20 + 7 * seed));
  ::kill(child, SIGKILL);
  int ended = 0;
  REQUIRE(::waitpid(child, &ended, 0) == child);
  REQUIRE(WIFSIGNALED(ended));

  const auto steps = steps_of(path);
  CHECK(has_all(steps, 1, 20));
  CHECK(has_all(steps, steps.back() - 18, steps.back()));
  CHECK(steps_in_trace(folder / "predicted.json").ok());
}

TEST_CASE("traces that cannot be written are refused", "[observe][errors]") {
  const ScratchFolder folder;
  std::ofstream(folder / "file") << "in the way";
  CHECK(RunTrace::open(folder / "file", 0).error().code == Errc::io_failed);
  auto trace = RunTrace::open(folder / "run", 0).value();
  std::filesystem::create_directories(folder / "run/predicted.json");
  const auto refused = trace.write(events_of(1, 1, 0), events_of(1, 1, 0));
  CHECK(refused.error().code == Errc::io_failed);
}

}  // namespace
}  // namespace troupe::observe
