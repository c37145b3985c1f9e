#include "balancer/ranks/assign_shares.hpp"

#include <limits>
#include <numeric>

namespace troupe::balancer {

namespace {

constexpr double kFar = std::numeric_limits<double>::infinity();

/// Shares come one after the other; each takes a place by the cheapest path along which those that
/// have one make way. Rows and columns count from 1, 0 is none.
class Assignment {
 public:
  Assignment(std::span<const double> costs, std::size_t count)
      : costs_(costs),
        count_(count),
        of_share_(count + 1, 0),
        of_place_(count + 1, 0),
        share_in_(count + 1, 0) {}

  /// False: there is no place for it.
  bool add(std::size_t share) {
    std::vector<double> least(count_ + 1, kFar);
    std::vector<std::size_t> from(count_ + 1, 0);
    std::vector<bool> reached(count_ + 1, false);
    share_in_[0] = share;
    std::size_t place = 0;
    do {
      reached[place] = true;
      const std::size_t moving = share_in_[place];
      std::size_t next = 0;
      for (std::size_t p = 1; p <= count_; ++p) {
        if (reached[p]) continue;
        const double cost =
            costs_[(moving - 1) * count_ + p - 1] - of_share_[moving] - of_place_[p];
        if (cost < least[p]) {
          least[p] = cost;
          from[p] = place;
        }
        if (least[p] < kFar && (next == 0 || least[p] < least[next])) next = p;
      }
      if (next == 0) return false;
      const double step = least[next];
      for (std::size_t p = 0; p <= count_; ++p) {
        if (reached[p]) {
          of_share_[share_in_[p]] += step;
          of_place_[p] -= step;
        } else {
          least[p] -= step;
        }
      }
      place = next;
    } while (share_in_[place] != 0);
    for (; place != 0; place = from[place]) share_in_[place] = share_in_[from[place]];
    return true;
  }

  std::vector<std::size_t> places() const {
    std::vector<std::size_t> found(count_);
    for (std::size_t p = 1; p <= count_; ++p) found[share_in_[p] - 1] = p - 1;
    return found;
  }

 private:
  std::span<const double> costs_;
  std::size_t count_;
  std::vector<double> of_share_, of_place_;  ///< Dual values.
  std::vector<std::size_t> share_in_;        ///< Per place; of place 0 the one that looks for one.
};

}  // namespace

std::vector<std::size_t> assign_shares(std::span<const double> costs, std::size_t count) {
  Assignment assignment(costs, count);
  for (std::size_t share = 1; share <= count; ++share)
    if (!assignment.add(share)) {
      std::vector<std::size_t> same(count);
      std::iota(same.begin(), same.end(), std::size_t{0});
      return same;
    }
  return assignment.places();
}

}  // namespace troupe::balancer
