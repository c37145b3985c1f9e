// Which replica would be done first with one more item: what list scheduling asks for where
// replicas differ in speed.
//
// Of those that are equally fast it is the one with the least load, so that a tree for each speed
// answers. Single owner, not thread-safe.

#pragma once

#include <cstddef>
#include <limits>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "balancer/loads/load_tree.hpp"

namespace troupe::balancer {

/// `Load` adds up, is ordered, and is divided by a speed.
template <class Load = double>
class FirstToFinish {
 public:
  /// REQUIRES: at least one speed, all > 0. `beyond`: larger than any load.
  explicit FirstToFinish(std::span<const double> speeds,
                         Load beyond = std::numeric_limits<Load>::max())
      : places_(speeds.size()) {
    std::map<double, std::vector<std::size_t>> alike;
    for (std::size_t r = 0; r < speeds.size(); ++r) alike[speeds[r]].push_back(r);
    for (auto& [speed, replicas] : alike) {
      for (std::size_t place = 0; place < replicas.size(); ++place)
        places_[replicas[place]] = {kinds_.size(), place};
      LoadTree<Load> loads(replicas.size(), Load{}, beyond);
      kinds_.push_back({speed, std::move(replicas), std::move(loads)});
    }
  }

  /// Of those that would end at the same time the lower one. Cost: O(speeds that differ).
  std::size_t find(const Load& more) const {
    std::pair<Load, std::size_t> best;
    bool is_first = true;
    for (const Kind& kind : kinds_) {
      const std::size_t place = kind.loads.least();
      const std::pair end{(kind.loads.key(place) + more) / kind.speed, kind.replicas[place]};
      if (is_first || end < best) best = end;
      is_first = false;
    }
    return best.second;
  }

  /// Cost: O(log replicas).
  void add(std::size_t replica, const Load& more) {
    const auto [kind, place] = places_[replica];
    auto& loads = kinds_[kind].loads;
    loads.set(place, loads.key(place) + more);
  }

  const Load& load(std::size_t replica) const {
    const auto [kind, place] = places_[replica];
    return kinds_[kind].loads.key(place);
  }
  /// When it is done with what it has.
  Load end(std::size_t replica) const {
    return load(replica) / kinds_[places_[replica].first].speed;
  }
  double speed(std::size_t replica) const { return kinds_[places_[replica].first].speed; }
  std::size_t size() const { return places_.size(); }

 private:
  struct Kind {
    double speed = 1;
    std::vector<std::size_t> replicas;  ///< Ascending.
    LoadTree<Load> loads;
  };
  std::vector<Kind> kinds_;
  std::vector<std::pair<std::size_t, std::size_t>> places_;  ///< Per replica: kind, place in it.
};

}  // namespace troupe::balancer
