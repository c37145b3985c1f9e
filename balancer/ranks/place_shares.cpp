#include "balancer/ranks/place_shares.hpp"

#include <algorithm>
#include <numeric>

#include "balancer/loads/descending.hpp"
#include "balancer/loads/sum_rounding.hpp"
#include "balancer/ranks/assign_shares.hpp"

namespace troupe::balancer {

namespace {

// Places of a block. Larger ones see further, and take longer: 24 came no nearer to the exact sum.
constexpr std::size_t kBlock = 16;

// Of a node's places that a block takes for a share, so that a large node does not fill it alone.
constexpr std::size_t kOfNode = 8;

/// Shares that move a block at a time, from where each is in its own place.
class Placer {
 public:
  Placer(const SharePlacement& problem, std::int64_t costs_max)
      : problem_(problem), costs_left_(costs_max), place_(problem.count), holder_(problem.count) {
    std::iota(place_.begin(), place_.end(), std::size_t{0});
    std::iota(holder_.begin(), holder_.end(), std::size_t{0});
    for (const std::size_t share : place_) own_.push_back(problem.cost(share, share));
  }

  std::vector<std::size_t> run() {
    const bool moves_nothing = std::ranges::all_of(own_, [](double cost) { return cost == 0; });
    if (problem_.count < 2 || moves_nothing) return place_;
    if (problem_.count <= kPlacedAtOnce) {
      place_exactly(std::vector(place_));
    } else {
      while (place_blocks()) continue;
    }
    return place_;
  }

 private:
  /// A block for each share that costs anything, the dearest first. False: none moved, or no more
  /// costs may be asked for.
  bool place_blocks() {
    bool changed = false;
    for (const auto share : by_descending(own_.size(), [&](std::size_t s) { return own_[s]; })) {
      const auto dear = static_cast<std::size_t>(share);
      if (own_[dear] == 0) continue;  // It moved to where it costs nothing.
      if (costs_left_ <= 0) return false;
      changed |= place_exactly(block_around(dear));
    }
    return changed;
  }

  /// Its place, those that it wants, those that whoever is there wants, and so on.
  std::vector<std::size_t> block_around(std::size_t share) const {
    std::vector<std::size_t> block{place_[share]};
    for (std::size_t next = 0; next < block.size() && block.size() < kBlock; ++next)
      add_wanted(holder_[block[next]], block);
    return block;
  }

  /// Places on nodes where the share costs less than where it is, and on its own.
  void add_wanted(std::size_t share, std::vector<std::size_t>& block) const {
    for (const std::size_t node : problem_.wanted[share]) {
      for (const std::size_t place : dearest(problem_.nodes[node])) {
        if (block.size() == kBlock) return;
        if (std::ranges::find(block, place) == block.end()) block.push_back(place);
      }
      if (std::ranges::binary_search(problem_.nodes[node], place_[share])) return;
    }
  }

  /// Of a node's places those whose shares cost most there: they lose least by leaving.
  std::vector<std::size_t> dearest(const std::vector<std::size_t>& places) const {
    std::vector<std::size_t> found(std::min(kOfNode, places.size()));
    std::partial_sort_copy(places.begin(), places.end(), found.begin(), found.end(),
                           [&](std::size_t a, std::size_t b) {
                             const double of_a = own_[holder_[a]], of_b = own_[holder_[b]];
                             return of_a > of_b || (of_a == of_b && a < b);
                           });
    return found;
  }

  /// The shares that are in these places, among each other, if that costs less than to stay.
  /// Whether any moved.
  bool place_exactly(const std::vector<std::size_t>& places) {
    const std::size_t size = places.size();
    if (size < 2) return false;
    std::vector<std::size_t> shares;
    std::vector<double> costs;
    for (const std::size_t place : places) shares.push_back(holder_[place]);
    for (const std::size_t share : shares)
      for (const std::size_t place : places) costs.push_back(problem_.cost(share, place));
    costs_left_ -= static_cast<std::int64_t>(costs.size());
    const auto to = assign_shares(costs, size);
    double before = 0, after = 0;
    for (std::size_t s = 0; s < size; ++s) {
      before += costs[s * size + s];
      after += costs[s * size + to[s]];
    }
    if (!(after < before * (1 - kSumRounding))) return false;
    for (std::size_t s = 0; s < size; ++s) {
      place_[shares[s]] = places[to[s]];
      holder_[places[to[s]]] = shares[s];
      own_[shares[s]] = costs[s * size + to[s]];
    }
    return true;
  }

  const SharePlacement& problem_;
  std::int64_t costs_left_;
  std::vector<std::size_t> place_;   ///< Per share.
  std::vector<std::size_t> holder_;  ///< Per place its share.
  std::vector<double> own_;          ///< Per share: what it costs where it is.
};

}  // namespace

std::vector<std::size_t> place_shares(const SharePlacement& problem, std::int64_t costs_max) {
  return Placer(problem, costs_max).run();
}

}  // namespace troupe::balancer
