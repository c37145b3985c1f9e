// The improved variants of algorithms 1, 4 and 5.

#include <algorithm>
#include <cmath>

#include "balancer/loads/load_tree.hpp"
#include "balancer/ranks/post_balance_rules.hpp"

namespace troupe::balancer::rules {

namespace {

constexpr int kRoundsMax = 4096;      // Exchanges kept.
constexpr std::size_t kPartners = 8;  // Light batches tried for each.

// Batches of additive costs; exchanges items between the heaviest and some of the lightest.
class Exchange {
 public:
  Exchange(const std::vector<double>& costs, BatchOf& batch_of, std::size_t batch_count)
      : costs_(costs), batch_of_(batch_of), items_(batch_count), loads_(batch_count, 0) {
    for (std::size_t i = 0; i < costs.size(); ++i) {
      const auto batch = static_cast<std::size_t>(batch_of[i]);
      items_[batch].push_back(i);  // Descending cost, as the items come.
      loads_[batch] += costs[i];
    }
  }

  void run() {
    for (int round = 0; round < kRoundsMax && improve(); ++round) {
    }
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  struct Trade {
    std::size_t give = kNone;  // Item of the heavy batch.
    std::size_t take = kNone;  // Item of the light batch; none: a move.
    double miss = HUGE_VAL;    // Distance from the wanted difference.
  };

  bool improve() {
    const auto heavy =
        static_cast<std::size_t>(std::max_element(loads_.begin(), loads_.end()) - loads_.begin());
    std::vector<std::size_t> light(loads_.size());
    for (std::size_t b = 0; b < light.size(); ++b) light[b] = b;
    const auto end = light.begin() + static_cast<std::ptrdiff_t>(std::min(kPartners, light.size()));
    std::partial_sort(light.begin(), end, light.end(), [&](auto a, auto b) {
      return loads_[a] != loads_[b] ? loads_[a] < loads_[b] : a < b;
    });
    for (auto partner = light.begin(); partner != end; ++partner)
      if (*partner != heavy && trade(heavy, *partner)) return true;
    return false;
  }

  // Keeps the best trade if both batches end below the heavy one's load.
  bool trade(std::size_t heavy, std::size_t light) {
    const double difference = loads_[heavy] - loads_[light];
    const Trade best = best_trade(items_[heavy], items_[light], difference / 2);
    if (best.give == kNone || best.miss >= difference / 2 * (1 - 1e-9)) return false;
    move(best.give, heavy, light);
    if (best.take != kNone) move(best.take, light, heavy);
    return true;
  }

  // For each item to give, the item to take back that comes closest: both lists descend, so one
  // pointer per list is enough.
  Trade best_trade(const std::vector<std::size_t>& heavy, const std::vector<std::size_t>& light,
                   double wanted) const {
    Trade best;
    std::size_t next = 0;
    for (const auto give : heavy) {
      consider(best, give, kNone, wanted);
      while (next < light.size() && costs_[give] - costs_[light[next]] < wanted) ++next;
      if (next < light.size()) consider(best, give, light[next], wanted);
      if (next > 0) consider(best, give, light[next - 1], wanted);
    }
    return best;
  }

  void consider(Trade& best, std::size_t give, std::size_t take, double wanted) const {
    const double moved = costs_[give] - (take == kNone ? 0 : costs_[take]);
    const double miss = std::abs(moved - wanted);
    if (miss < best.miss) best = {give, take, miss};
  }

  void move(std::size_t item, std::size_t from, std::size_t to) {
    auto& source = items_[from];
    source.erase(std::lower_bound(source.begin(), source.end(), item));
    items_[to].insert(std::lower_bound(items_[to].begin(), items_[to].end(), item), item);
    loads_[from] -= costs_[item];
    loads_[to] += costs_[item];
    batch_of_[item] = static_cast<std::int32_t>(to);
  }

  const std::vector<double>& costs_;
  BatchOf& batch_of_;
  std::vector<std::vector<std::size_t>> items_;
  std::vector<double> loads_;
};

// Runs of the descending items whose load stays within a bound: batch of each, or nothing when
// more than batch_count are needed.
bool runs_within(Items items, std::size_t batch_count, double alpha, double beta, double bound,
                 BatchOf& batch_of) {
  std::size_t batch = 0;
  double sum = 0;
  double count = 0;
  double square = 0;  // Of the batch's longest, its first.
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto length = static_cast<double>(items[i].length);
    const bool fits = count > 0 && alpha * (sum + length) + beta * (count + 1) * square <= bound;
    if (!fits) {
      if (count > 0 && ++batch == batch_count) return false;
      sum = count = 0;
      square = length * length;
      if (alpha * length + beta * square > bound) return false;
    }
    sum += length;
    ++count;
    batch_of[i] = static_cast<std::int32_t>(batch);
  }
  return true;
}

}  // namespace

BatchOf additive_search(Items items, std::size_t batch_count, double alpha, double beta) {
  std::vector<double> costs;
  costs.reserve(items.size());
  for (const auto& item : items) {
    const auto length = static_cast<double>(item.length);
    costs.push_back(alpha * length + beta * length * length);
  }
  BatchOf batch_of(items.size());
  LoadTree<double> loads(batch_count);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto batch = loads.least();
    batch_of[i] = static_cast<std::int32_t>(batch);
    loads.set(batch, loads.key(batch) + costs[i]);
  }
  Exchange(costs, batch_of, batch_count).run();
  return batch_of;
}

BatchOf padded_attention_runs(Items items, std::size_t batch_count, double alpha, double beta) {
  BatchOf batch_of(items.size(), 0);
  if (items.empty()) return batch_of;
  const auto longest = static_cast<double>(items.front().length);
  const double single = alpha * longest + beta * longest * longest;
  double low = single;
  double high =
      single * static_cast<double>((items.size() + batch_count - 1) / batch_count) * (1 + 1e-9);
  BatchOf trial(items.size(), 0);
  // Halving to a ten-thousandth of the range: the items' own grain is coarser.
  for (int step = 0; step < 24 && high - low > 1e-4 * low; ++step) {
    const double middle = low + (high - low) / 2;
    if (runs_within(items, batch_count, alpha, beta, middle, trial)) {
      high = middle;
      batch_of = trial;
    } else {
      low = middle;
    }
  }
  if (runs_within(items, batch_count, alpha, beta, high, trial)) batch_of = trial;
  return batch_of;
}

}  // namespace troupe::balancer::rules
