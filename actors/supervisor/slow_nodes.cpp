#include "actors/supervisor/slow_nodes.hpp"

#include <algorithm>
#include <utility>

namespace troupe::actors {

namespace {

constexpr double kSlow = 2, kRecovered = 1.5;
constexpr double kMost = 0.75;  // Of a window: a few steps in between change nothing.

/// The value that so large a share of the others is not above. REQUIRES: not empty.
double quantile(std::vector<double> values, double share) {
  const auto place =
      values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

}  // namespace

void SlowNodes::Record::add(double figure) {
  recent_.push_back(figure);
  if (recent_.size() > kWindow) recent_.pop_front();
  if (!is_full()) return;
  const double median = quantile({recent_.begin(), recent_.end()}, 0.5);
  usual_ = usual_ > 0 ? std::min(usual_, median) : median;
}

double SlowNodes::Record::times_usual(double share) const {
  return quantile({recent_.begin(), recent_.end()}, share) / usual_;
}

double SlowNodes::Record::median() const { return quantile({recent_.begin(), recent_.end()}, 0.5); }

void SlowNodes::start(NodeId node, double times) { starts_[node].times = times; }

std::map<NodeId, double> SlowNodes::times() const {
  auto all = slow_;
  for (const auto& [node, start] : starts_) all[node] = start.times;
  return all;
}

std::vector<SlowNodeNote> SlowNodes::notes() const {
  std::vector<SlowNodeNote> notes;
  for (const auto& [id, times] : slow_) {
    const Node& node = nodes_.at(id);
    notes.push_back({id, times, node.own.usual(), node.beside.usual()});
  }
  return notes;
}

void SlowNodes::recall(const SlowNodeNote& note) {
  slow_[note.node] = note.times;
  nodes_[note.node].own.recall(note.own_usual);
  nodes_[note.node].beside.recall(note.beside_usual);
}

void SlowNodes::forget(NodeId node) {
  nodes_.erase(node);
  slow_.erase(node);
  starts_.erase(node);
}

/// Others may take longer because they have got other work. Who was slow by then stays so until it
/// is seen to be as fast as it was: fewer samples are its share in the new layout too.
void SlowNodes::change_layout() {
  std::erase_if(nodes_, [&](const auto& node) { return !slow_.contains(node.first); });
  for (auto& [id, node] : nodes_) {
    node.own.begin_anew();
    node.beside.begin_anew();
  }
  for (auto& [id, start] : starts_) start.beside.begin_anew();
}

void SlowNodes::note_starts(std::span<const std::pair<NodeId, double>> paces) {
  std::vector<double> others;
  for (const auto& [id, pace] : paces)
    if (!starts_.contains(id)) others.push_back(pace);
  if (others.empty()) return;
  const double middle = quantile(std::move(others), 0.5);
  for (const auto& [id, pace] : paces) {
    const auto start = starts_.find(id);
    if (start == starts_.end()) continue;
    start->second.beside.add(pace / middle);
    if (start->second.beside.is_full()) start->second.times = start->second.beside.median();
  }
}

std::vector<SpeedChange> SlowNodes::note(EpochNumber generation, std::span<const NodePace> paces) {
  if (std::exchange(generation_, generation) != generation) change_layout();
  std::vector<std::pair<NodeId, double>> known;
  std::vector<double> all;
  for (const NodePace& pace : paces) {
    if (!(pace.measured_ms > 0 && pace.profile_ms > 0)) continue;
    known.emplace_back(pace.node, pace.measured_ms / pace.profile_ms);
    all.push_back(known.back().second);
  }
  std::vector<SpeedChange> changes;
  if (known.size() < 2) return changes;
  note_starts(known);
  const double middle = quantile(all, 0.5);  // Of two the faster one.
  for (const auto& [id, pace] : known) {
    Node& node = nodes_[id];
    node.own.add(pace);
    node.beside.add(pace / middle);
    if (!node.own.is_full()) continue;
    const auto times = [&](double share) {
      return std::min(node.own.times_usual(share), node.beside.times_usual(share));
    };
    const bool was_slow = slow_.contains(id);
    if (was_slow && times(kMost) < kRecovered) {
      slow_.erase(id);
      changes.push_back({id, times(0.5), false});
    } else if (was_slow || times(1 - kMost) > kSlow) {
      slow_[id] = std::max(1.0, times(0.5));
      if (!was_slow) changes.push_back({id, times(0.5), true});
    }
  }
  return changes;
}

}  // namespace troupe::actors
