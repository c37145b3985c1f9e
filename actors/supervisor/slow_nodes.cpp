#include "actors/supervisor/slow_nodes.hpp"

#include <algorithm>

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

std::vector<SpeedChange> SlowNodes::note(EpochNumber generation, std::span<const NodePace> paces) {
  if (generation != generation_) {
    generation_ = generation;
    nodes_.clear();
    slow_.clear();
  }
  std::vector<std::pair<NodeId, double>> known;
  std::vector<double> all;
  for (const NodePace& pace : paces) {
    if (!(pace.measured_ms > 0 && pace.profile_ms > 0)) continue;
    known.emplace_back(pace.node, pace.measured_ms / pace.profile_ms);
    all.push_back(known.back().second);
  }
  std::vector<SpeedChange> changes;
  if (known.size() < 2) return changes;
  const double middle = quantile(all, 0.5);  // Of two the faster one.
  for (const auto& [id, pace] : known) {
    Node& node = nodes_[id];
    node.own.add(pace);
    node.beside.add(pace / middle);
    if (!node.own.is_full()) continue;
    const auto times = [&](double share) {
      return std::min(node.own.times_usual(share), node.beside.times_usual(share));
    };
    if (!slow_.contains(id) && times(1 - kMost) > kSlow) {
      slow_.insert(id);
      changes.push_back({id, times(0.5), true});
    } else if (slow_.contains(id) && times(kMost) < kRecovered) {
      slow_.erase(id);
      changes.push_back({id, times(0.5), false});
    }
  }
  return changes;
}

}  // namespace troupe::actors
