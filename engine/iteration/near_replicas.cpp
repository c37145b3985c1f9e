#include "engine/iteration/near_replicas.hpp"

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

}  // namespace

std::optional<std::vector<std::size_t>> keep_near(std::span<const WantedSample> samples,
                                                  const std::vector<std::vector<std::size_t>>& near,
                                                  double end_max, Loads& loads) {
  Loads tried = loads;
  std::vector<std::size_t> chosen;
  for (const WantedSample& sample : samples) {
    const auto fits = [&](std::size_t r) {
      return (tried.load(r) + sample.work) / tried.speed(r) <= end_max;
    };
    const auto& own = near[sample.node];
    std::size_t replica = own.empty() ? 0 : first_of(own, sample.work, tried);
    if (own.empty() || !fits(replica)) replica = tried.find(sample.work);
    if (!fits(replica)) return std::nullopt;
    tried.add(replica, sample.work);
    chosen.push_back(replica);
  }
  loads = std::move(tried);
  return chosen;
}

}  // namespace troupe::engine
