#include "engine/near_replicas.hpp"

#include <algorithm>
#include <utility>

namespace troupe::engine {

namespace {

using Loads = balancer::FirstToFinish<double>;

/// The replica of a node that would end first; of equal ones the lower.
std::size_t first_of(const std::vector<std::size_t>& replicas, double work, const Loads& loads) {
  const auto end = [&](std::size_t r) { return (loads.load(r) + work) / loads.speed(r); };
  return *std::min_element(replicas.begin(), replicas.end(),
                           [&](std::size_t a, std::size_t b) { return end(a) < end(b); });
}

/// Takes from a replica what it cannot do in time. `own`: its samples by descending work.
void give_away(std::span<const WantedSample> samples, std::size_t replica, double end_max,
               std::vector<std::size_t>& own, Loads& loads, std::vector<std::size_t>& given) {
  while (!own.empty() && loads.end(replica) > end_max) {
    const double excess = loads.load(replica) - end_max * loads.speed(replica);
    // The last one that is enough: behind it all are smaller.
    const auto smaller = std::partition_point(
        own.begin(), own.end(), [&](std::size_t s) { return samples[s].work >= excess; });
    const auto gone = smaller == own.begin() ? smaller : std::prev(smaller);
    loads.add(replica, -samples[*gone].work);
    given.push_back(*gone);
    own.erase(gone);
  }
}

}  // namespace

std::optional<std::vector<std::size_t>> keep_near(std::span<const WantedSample> samples,
                                                  const std::vector<std::vector<std::size_t>>& near,
                                                  double end_max, Loads& loads) {
  Loads tried = loads;
  std::vector<std::vector<std::size_t>> own(loads.size());
  std::vector<std::size_t> given;
  for (std::size_t s = 0; s < samples.size(); ++s) {
    const auto& replicas = near[samples[s].node];
    if (replicas.empty()) {
      given.push_back(s);
      continue;
    }
    const std::size_t replica = first_of(replicas, samples[s].work, tried);
    tried.add(replica, samples[s].work);
    own[replica].push_back(s);
  }
  std::vector<std::size_t> chosen(samples.size());
  for (std::size_t r = 0; r < own.size(); ++r) {
    give_away(samples, r, end_max, own[r], tried, given);
    for (const std::size_t s : own[r]) chosen[s] = r;
  }
  std::sort(given.begin(), given.end());  // By work again.
  for (const std::size_t s : given) {
    chosen[s] = tried.find(samples[s].work);
    tried.add(chosen[s], samples[s].work);
    if (tried.end(chosen[s]) > end_max) return std::nullopt;
  }
  loads = std::move(tried);
  return chosen;
}

}  // namespace troupe::engine
