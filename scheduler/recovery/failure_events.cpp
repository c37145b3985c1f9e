#include "scheduler/recovery/failure_events.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "runtime/vocabulary/random.hpp"

namespace troupe::scheduler {

namespace {

std::int64_t take_one(RankList& nodes, Random& random) {
  const auto index = static_cast<std::ptrdiff_t>(random.below(nodes.size()));
  const auto node = nodes[static_cast<std::size_t>(index)];
  nodes.erase(nodes.begin() + index);
  return node;
}

}  // namespace

std::vector<NodeEvent> periodic_failures(std::int64_t node_count, std::int64_t count,
                                         double period_ms, std::uint64_t seed) {
  Random random(seed);
  RankList nodes;
  for (std::int64_t node = 0; node < node_count; ++node) nodes.push_back(node);
  std::vector<NodeEvent> events;
  for (std::int64_t i = 1; i <= count; ++i)
    events.push_back({static_cast<double>(i) * period_ms, {take_one(nodes, random)}, {}});
  return events;
}

std::vector<NodeEvent> random_failures(std::int64_t node_count, std::int64_t count, double mean_ms,
                                       std::uint64_t seed) {
  auto events = periodic_failures(node_count, count, mean_ms, seed);
  Random random(seed ^ 0x5DEECE66Du);  // Times apart from the choice of nodes.
  double now_ms = 0;
  for (auto& event : events) event.time_ms = now_ms -= mean_ms * std::log1p(-random.uniform());
  return events;
}

std::vector<NodeEvent> events_of_counts(const std::vector<NodeCount>& counts, std::uint64_t seed) {
  Random random(seed);
  std::vector<NodeEvent> events;
  RankList nodes;
  std::int64_t next_id = counts.empty() ? 0 : counts.front().nodes;
  for (std::int64_t node = 0; node < next_id; ++node) nodes.push_back(node);
  for (const auto& [time_ms, wanted] : counts) {
    NodeEvent event{time_ms, {}, {}};
    while (static_cast<std::int64_t>(nodes.size()) > wanted)
      event.lost.push_back(take_one(nodes, random));
    while (static_cast<std::int64_t>(nodes.size()) < wanted) {
      event.joined.push_back(next_id);
      nodes.push_back(next_id++);
    }
    std::sort(event.lost.begin(), event.lost.end());
    if (!event.lost.empty() || !event.joined.empty()) events.push_back(std::move(event));
  }
  return events;
}

std::vector<NodeEvent> after_start(const std::vector<NodeEvent>& events, double start_ms) {
  if (start_ms <= 0) return events;
  std::map<double, NodeEvent> changed;  // By time: what is equal is one event.
  std::map<std::int64_t, double> starting;
  const auto settle = [&](double now_ms) {
    for (auto node = starting.begin(); node != starting.end();) {
      if (node->second >= now_ms) {  // One that goes as it is ready never joined.
        ++node;
        continue;
      }
      changed[node->second].joined.push_back(node->first);
      node = starting.erase(node);
    }
  };
  for (const NodeEvent& event : events) {
    settle(event.time_ms);
    for (const auto node : event.lost)
      if (starting.erase(node) == 0) changed[event.time_ms].lost.push_back(node);
    for (const auto node : event.joined) starting[node] = event.time_ms + start_ms;
  }
  settle(std::numeric_limits<double>::infinity());
  std::vector<NodeEvent> made;
  for (auto& [time_ms, event] : changed) {
    event.time_ms = time_ms;
    made.push_back(std::move(event));
  }
  return made;
}

std::vector<NodeArrival> arrivals_of(const RankList& nodes, const std::vector<NodeEvent>& events,
                                     double start_ms) {
  std::vector<NodeArrival> made(nodes.size(), {-start_ms, 0, true});
  std::map<std::int64_t, std::size_t> newest;  // Of each node that comes.
  for (const NodeEvent& event : events) {
    for (const auto node : event.lost) {
      const auto found = newest.find(node);
      if (found == newest.end() || made[found->second].until_ms < event.time_ms) continue;
      made[found->second].until_ms = event.time_ms;
      made[found->second].is_ready = false;
    }
    for (const auto node : event.joined) {
      newest[node] = made.size();
      made.push_back({event.time_ms, event.time_ms + start_ms, true});
    }
  }
  std::stable_sort(made.begin(), made.end(), [](const NodeArrival& a, const NodeArrival& b) {
    return a.until_ms < b.until_ms;
  });
  return made;
}

}  // namespace troupe::scheduler
