#include "scheduler/simulate/device_memory.hpp"

#include <algorithm>
#include <iterator>

namespace troupe::scheduler {

namespace {

/// Of what is held at the times of sorted changes.
double most_of(const std::vector<std::pair<double, double>>& changes) {
  double held = 0, most = 0;
  for (const auto& [ms, bytes] : changes) most = std::max(most, held += bytes);
  return most;
}

}  // namespace

DeviceMemory::DeviceMemory(const std::vector<Action>& list) {
  std::vector<MessageEnd> ends;
  for (const auto& action : list)
    if (action.microbatch.valid() && !moves_activations(action.kind))
      ends.push_back({action.stage, action.microbatch, action.part});
  std::sort(ends.begin(), ends.end());
  for (const auto& end : ends) {
    if (parts_.empty() || parts_.back().end != end) parts_.push_back({end, 0, false, 0});
    ++parts_.back().actions_left;
  }
}

DeviceMemory::Part* DeviceMemory::find(const MessageEnd& end) {
  const auto found =
      std::lower_bound(parts_.begin(), parts_.end(), end,
                       [](const Part& part, const MessageEnd& key) { return part.end < key; });
  return found != parts_.end() && found->end == end ? &*found : nullptr;
}

void DeviceMemory::compute(const MessageEnd& part, double bytes, double begin_ms, double end_ms) {
  Part* held = find(part);
  if (!held) return;
  if (!held->open) {
    held->open = true;
    held->bytes += bytes;
    changes_.emplace_back(begin_ms, bytes);
  }
  if (--held->actions_left == 0) changes_.emplace_back(end_ms, -held->bytes);
}

void DeviceMemory::arrive(const MessageEnd& part, double bytes, double ms) {
  Part* held = find(part);
  if (!held || held->actions_left == 0) return;
  held->bytes += bytes;
  changes_.emplace_back(ms, bytes);
}

void DeviceMemory::move(ActionKind kind, double bytes, double begin_ms, double end_ms) {
  if (moves_state(kind)) {
    const bool comes = kind == ActionKind::fetch_state;
    state_changes_.emplace_back(comes ? begin_ms : end_ms, comes ? bytes : -bytes);
    host_state_bytes_ += comes ? bytes : 0;
    return;
  }
  const bool away = kind == ActionKind::offload;
  changes_.emplace_back(away ? end_ms : begin_ms, away ? -bytes : bytes);
  host_bytes_ += away ? bytes : -bytes;
  peak_host_bytes_ = std::max(peak_host_bytes_, host_bytes_);
}

MemoryPeaks DeviceMemory::peaks() const {
  auto changes = changes_;
  std::sort(changes.begin(), changes.end());
  MemoryPeaks peaks{0, most_of(changes), host_state_bytes_ + peak_host_bytes_};
  if (state_changes_.empty()) {
    peaks.bytes = state_bytes_ + peaks.activations;
    return peaks;
  }
  auto state = state_changes_;
  std::sort(state.begin(), state.end());
  Changes all;
  std::merge(changes.begin(), changes.end(), state.begin(), state.end(), std::back_inserter(all));
  peaks.bytes = state_bytes_ + most_of(all);
  return peaks;
}

}  // namespace troupe::scheduler
