#include "runtime/observe/stage_work.hpp"

#include <algorithm>
#include <map>

namespace troupe::observe {

std::vector<StageWork> stage_work(std::span<const TraceEvent> events) {
  std::map<StageId, StageWork> by_stage;
  for (const auto& event : events) {
    if (time_kind(event.action.kind) != TimeKind::compute) continue;
    const StageWork fresh{event.action.stage, event.device, 0, event.begin_ns, event.end_ns};
    auto& work = by_stage.try_emplace(event.action.stage, fresh).first->second;
    work.work_ns += event.duration_ns();
    work.begin_ns = std::min(work.begin_ns, event.begin_ns);
    work.end_ns = std::max(work.end_ns, event.end_ns);
  }
  std::vector<StageWork> stages;
  for (const auto& [stage, work] : by_stage) stages.push_back(work);
  return stages;
}

StepBalance step_balance(std::span<const StageWork> stages, std::int32_t device_count) {
  std::int64_t total = 0, largest = 0, begin = 0, end = 0;
  bool any = false;
  for (const auto& stage : stages) {
    if (stage.work_ns <= 0) continue;
    total += stage.work_ns;
    largest = std::max(largest, stage.work_ns);
    begin = any ? std::min(begin, stage.begin_ns) : stage.begin_ns;
    end = any ? std::max(end, stage.end_ns) : stage.end_ns;
    any = true;
  }
  StepBalance balance;
  if (!any) return balance;
  const auto span_ns = static_cast<double>(end - begin);
  const double room_ns = span_ns * device_count;
  const double mean_ns = static_cast<double>(total) / static_cast<double>(stages.size());
  balance.span_ms = span_ns / 1e6;
  // Clocks of several machines may disagree; a share outside of [0, 1] would only confuse.
  if (room_ns > 0) balance.bubble = std::clamp(1 - static_cast<double>(total) / room_ns, 0.0, 1.0);
  balance.imbalance = static_cast<double>(largest) / mean_ns;
  return balance;
}

StepTimes step_times(std::span<const TraceEvent> events, std::int32_t device_count) {
  StepTimes times;
  if (device_count < 1) return times;
  for (const auto& event : events) {
    const double ms = static_cast<double>(event.duration_ns()) / 1e6 / device_count;
    switch (time_kind(event.action.kind)) {
      case TimeKind::compute: times.compute_ms += ms; break;
      case TimeKind::update: times.update_ms += ms; break;
      case TimeKind::transfer: times.transfer_ms += ms; break;
      case TimeKind::wait: times.wait_ms += ms; break;
      case TimeKind::offload: times.offload_ms += ms; break;
    }
  }
  return times;
}

}  // namespace troupe::observe
