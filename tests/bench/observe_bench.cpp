// What seeing costs: recording an event, reading the clock, writing a trace and a metrics line.
//
// The bound of recording is 1000 ns: far below the shortest action.

#include <unistd.h>

#include <filesystem>
#include <vector>

#include "runtime/observe/step_metrics.hpp"
#include "runtime/observe/trace_writer.hpp"
#include "tests/bench/report.hpp"

using namespace troupe;
using namespace troupe::observe;

namespace {

constexpr int kEvents = 200'000;

IterationPlan make_plan() {
  IterationPlan plan;
  plan.step = 1;
  Message message;
  message.source = {StageId{0}, MicrobatchId{0}, PartId{0}};
  message.destination = {StageId{1}, MicrobatchId{0}, PartId{0}};
  message.rows = message.width = 64;
  plan.messages.assign(64, message);
  return plan;
}

// As an executor does it: two clock readings and one record per action.
double record_ns() {
  const auto plan = make_plan();
  std::vector<TraceEvent> events;
  Action action{ActionKind::send, {}, {}, {}, MessageId{0}, {}};
  return 1e9 / kEvents * bench::median_seconds(5, [&] {
           events.clear();
           for (int i = 0; i < kEvents; ++i) {
             action.message = MessageId{i % 64};
             auto event = trace_event(plan, DeviceId{0}, action, 4);
             event.begin_ns = trace_now_ns();
             event.end_ns = trace_now_ns();
             events.push_back(event);
           }
         });
}

double write_ns(const std::filesystem::path& path) {
  auto writer = TraceWriter::open(path, trace_now_ns()).value();
  std::vector<TraceEvent> events(10'000);
  for (auto& event : events) {
    event.action.stage = StageId{0};
    event.action.microbatch = MicrobatchId{3};
    event.begin_ns = event.end_ns = trace_now_ns();
  }
  return 1e9 / static_cast<double>(events.size()) *
         bench::median_seconds(5, [&] { (void)writer.write(events); });
}

}  // namespace

int main() {
  bench::report("trace: record one action", record_ns(), "ns",
                {{"bound", 1000}, {"better", "lower"}});
  const auto path = std::filesystem::temp_directory_path() /
                    ("troupe-bench-" + std::to_string(::getpid()) + ".json");
  bench::report("trace: write one slice", write_ns(path), "ns", {{"better", "lower"}});
  std::filesystem::remove(path);
  const StepMetrics metrics;
  std::size_t length = 0;
  const double seconds = bench::median_seconds(5, [&] {
    for (int i = 0; i < 1000; ++i) length += metrics_line(metrics).size();
  });
  bench::report("metrics: format one line", 1e9 * seconds / 1000, "ns", {{"better", "lower"}});
  return length > 0 ? 0 : 1;
}
