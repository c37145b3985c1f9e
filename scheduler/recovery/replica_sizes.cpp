#include "scheduler/recovery/replica_sizes.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace troupe::scheduler {

namespace {

std::int64_t length(const RankList& ranks) { return static_cast<std::int64_t>(ranks.size()); }

/// Whether replicas use all that the groups have.
bool use_all(const std::vector<GroupNeed>& groups, const std::vector<std::int64_t>& dealt) {
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::int64_t devices = groups[g].devices + dealt[g];
    if (devices < groups[g].sizes.least || groups[g].sizes.used_of(devices) != devices)
      return false;
  }
  return true;
}

/// Whether the one group, with so many dealt to it, needs a device more than the other.
bool is_needier(const GroupNeed& one, std::int64_t dealt, const GroupNeed& other,
                std::int64_t other_dealt) {
  const std::int64_t devices = one.devices + dealt, others = other.devices + other_dealt;
  const bool is_short = devices < one.sizes.least, is_other_short = others < other.sizes.least;
  if (is_short != is_other_short) return is_short;
  return one.work_ms * static_cast<double>(others) > other.work_ms * static_cast<double>(devices);
}

RankList take_tail(RankList& from, std::int64_t count) {
  const auto tail = from.end() - count;
  RankList taken(tail, from.end());
  from.erase(tail, from.end());
  return taken;
}

/// A new replica of what is beyond others; false where these have too few left to complete it.
bool add_replica(std::vector<RankList>& replicas, const ReplicaSizes& sizes, RankList& beyond) {
  RankList made = take_tail(beyond, std::min(sizes.most, length(beyond)));
  while (length(made) < sizes.least) {
    const auto largest =
        std::max_element(replicas.begin(), replicas.end(),
                         [](const RankList& a, const RankList& b) { return a.size() < b.size(); });
    if (largest == replicas.end() || length(*largest) <= sizes.least) return false;
    made.push_back(largest->back());
    largest->pop_back();
  }
  replicas.push_back(std::move(made));
  return true;
}

}  // namespace

std::int64_t ReplicaSizes::used_of(std::int64_t devices) const {
  return std::min(devices, devices / least * most);
}

std::vector<std::int64_t> deal_devices(const std::vector<GroupNeed>& groups, std::int64_t count) {
  std::vector<std::int64_t> dealt(groups.size());
  for (std::int64_t device = 0; device < count; ++device) {
    std::size_t neediest = 0;
    for (std::size_t g = 1; g < groups.size(); ++g)
      if (is_needier(groups[g], dealt[g], groups[neediest], dealt[neediest])) neediest = g;
    ++dealt[neediest];
  }
  if (use_all(groups, dealt)) return dealt;
  for (std::int64_t moved = 1; moved <= count; ++moved)
    for (std::size_t from = 0; from < groups.size(); ++from)
      for (std::size_t to = 0; to < groups.size(); ++to) {
        if (from == to || dealt[from] < moved) continue;
        auto changed = dealt;
        changed[from] -= moved;
        changed[to] += moved;
        if (use_all(groups, changed)) return changed;
      }
  return dealt;
}

void fit_replicas(std::vector<RankList>& replicas, const ReplicaSizes& sizes,
                  const std::function<bool(const RankList&)>& is_kept) {
  RankList beyond;
  for (RankList& own : replicas) {
    if (length(own) <= sizes.most || is_kept(own)) continue;
    const RankList tail = take_tail(own, length(own) - sizes.most);
    beyond.insert(beyond.end(), tail.begin(), tail.end());
  }
  if (beyond.empty()) return;
  for (RankList& own : replicas) {
    const auto room = std::clamp<std::int64_t>(sizes.most - length(own), 0, length(beyond));
    const RankList tail = take_tail(beyond, room);
    own.insert(own.end(), tail.begin(), tail.end());
  }
  while (!beyond.empty() && add_replica(replicas, sizes, beyond)) {
  }
  for (RankList& own : replicas) std::sort(own.begin(), own.end());
  std::sort(replicas.begin(), replicas.end(), [](const RankList& a, const RankList& b) {
    return a.size() != b.size() ? a.size() < b.size() : a.front() < b.front();
  });
}

}  // namespace troupe::scheduler
