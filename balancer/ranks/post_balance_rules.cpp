// Algorithms 1, 2, 4 and 5 of OrchMLLM.

#include "balancer/ranks/post_balance_rules.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <queue>

#include "balancer/loads/load_tree.hpp"

namespace troupe::balancer::rules {

namespace {

// Ascending runs: item `ascending(i)` is the i-th smallest.
class AscendingRuns {
 public:
  explicit AscendingRuns(Items items) : items_(items) {}

  // Longest run from `begin` whose count times longest stays within the bound. Both factors grow
  // along the run, so the end can be found by bisection.
  std::size_t end_of_run(std::size_t begin, std::int64_t bound) const {
    std::size_t fits = begin;
    std::size_t beyond = items_.size();
    if (length(begin) > 0)
      beyond = std::min(beyond, begin + static_cast<std::size_t>(bound / length(begin)));
    while (fits < beyond) {
      const std::size_t middle = (fits + beyond + 1) / 2;
      const auto padded = static_cast<std::int64_t>(middle - begin) * length(middle - 1);
      (padded <= bound ? fits : beyond) = padded <= bound ? middle : middle - 1;
    }
    return fits;
  }

  std::size_t batches_within(std::int64_t bound, std::size_t limit) const {
    std::size_t batches = 0;
    for (std::size_t begin = 0; begin < items_.size() && batches <= limit; ++batches)
      begin = end_of_run(begin, bound);
    return batches;
  }

 private:
  std::int64_t length(std::size_t i) const { return items_[items_.size() - 1 - i].length; }

  Items items_;
};

// Batches within the tolerance of the smallest sum, by their sums of squares.
class ToleranceWindow {
 public:
  ToleranceWindow(std::size_t batch_count, double tolerance)
      : tolerance_(tolerance), sums_(batch_count), near_(batch_count), squares_(batch_count, 0) {}

  std::size_t best() const { return near_.least(); }

  void add(std::size_t batch, double length) {
    sums_.set(batch, sums_.key(batch) + length);
    squares_[batch] += length * length;
    if (inside(batch)) {
      near_.set(batch, squares_[batch]);
    } else {
      near_.set(batch, HUGE_VAL);
      far_.emplace(sums_.key(batch), batch);
    }
    // The smallest sum only grows, so a batch enters the window once after each item it took.
    while (!far_.empty() && inside(far_.top().second)) {
      near_.set(far_.top().second, squares_[far_.top().second]);
      far_.pop();
    }
  }

 private:
  bool inside(std::size_t batch) const {
    const double above = sums_.key(batch) - sums_.key(sums_.least());
    return above < tolerance_ || above == 0;
  }

  using Far = std::pair<double, std::size_t>;
  double tolerance_;
  LoadTree<double> sums_;
  LoadTree<double> near_;
  std::vector<double> squares_;
  std::priority_queue<Far, std::vector<Far>, std::greater<>> far_;
};

template <class Tree>
void fill_with(Tree tree, Items items, std::size_t first, const std::vector<std::int64_t>& sums,
               BatchOf& batch_of) {
  for (std::size_t b = 0; b < sums.size(); ++b)
    if (sums[b] > 0) tree.set(b, sums[b]);
  for (std::size_t i = first; i < items.size(); ++i) {
    const auto batch = tree.least();
    batch_of[i] = static_cast<std::int32_t>(batch);
    tree.set(batch, tree.key(batch) + items[i].length);
  }
}

// Items from `first` on go to the least sum, starting from `sums`.
void fill_least_sum(Items items, std::size_t first, const std::vector<std::int64_t>& sums,
                    BatchOf& batch_of) {
  std::int64_t total = std::accumulate(sums.begin(), sums.end(), std::int64_t{0});
  for (std::size_t i = first; i < items.size(); ++i) total += items[i].length;
  if (total < PackedLoadTree::kSumEnd && sums.size() < PackedLoadTree::kSizeEnd) {
    fill_with(PackedLoadTree(sums.size()), items, first, sums, batch_of);
  } else {
    fill_with(LoadTree<std::int64_t>(sums.size()), items, first, sums, batch_of);
  }
}

}  // namespace

double load_of(const BatchTotals& totals, const PostBalanceOptions& options) {
  const auto longest = static_cast<double>(totals.longest);
  const auto count = static_cast<double>(totals.count);
  switch (options.algorithm) {
    case PostBalance::no_padding:
    case PostBalance::no_padding_search: return totals.sum;
    case PostBalance::padding: return count * longest;
    case PostBalance::quadratic:
    case PostBalance::quadratic_search:
      return options.alpha * totals.sum + options.beta * totals.squares;
    case PostBalance::padded_attention:
    case PostBalance::padded_attention_search: break;
  }
  return options.alpha * totals.sum + options.beta * count * longest * longest;
}

BatchOf longest_first(Items items, std::size_t batch_count) {
  BatchOf batch_of(items.size());
  fill_least_sum(items, 0, std::vector<std::int64_t>(batch_count, 0), batch_of);
  return batch_of;
}

BatchOf padded_runs(Items items, std::size_t batch_count) {
  BatchOf batch_of(items.size(), 0);
  if (items.empty()) return batch_of;
  const AscendingRuns runs(items);
  const std::int64_t longest = items.front().length;
  std::int64_t low = longest;
  std::int64_t high =
      longest * static_cast<std::int64_t>((items.size() + batch_count - 1) / batch_count);
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (runs.batches_within(middle, batch_count) <= batch_count) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  std::int32_t batch = 0;
  for (std::size_t begin = 0; begin < items.size(); ++batch) {
    const std::size_t end = runs.end_of_run(begin, high);
    for (; begin < end; ++begin) batch_of[items.size() - 1 - begin] = batch;
  }
  return batch_of;
}

BatchOf quadratic(Items items, std::size_t batch_count, double tolerance) {
  BatchOf batch_of;
  batch_of.reserve(items.size());
  ToleranceWindow window(batch_count, tolerance);
  for (const auto& item : items) {
    const auto batch = window.best();
    batch_of.push_back(static_cast<std::int32_t>(batch));
    window.add(batch, static_cast<double>(item.length));
  }
  return batch_of;
}

BatchOf padded_attention(Items items, std::size_t batch_count) {
  BatchOf batch_of = longest_first(items, batch_count);
  std::vector<std::int64_t> sums(batch_count, 0);
  for (std::size_t i = 0; i < items.size(); ++i)
    sums[static_cast<std::size_t>(batch_of[i])] += items[i].length;
  const std::int64_t bound = *std::max_element(sums.begin(), sums.end());
  std::fill(sums.begin(), sums.end(), 0);
  std::size_t batch = 0;
  std::int64_t count = 0;
  std::int64_t longest = items.empty() ? 0 : items.front().length;
  std::size_t i = 0;
  for (; i < items.size(); ++i, ++count) {
    if ((count + 1) * longest > bound) {
      if (++batch == batch_count) break;
      count = 0;
      longest = items[i].length;
    }
    batch_of[i] = static_cast<std::int32_t>(batch);
    sums[batch] += items[i].length;
  }
  fill_least_sum(items, i, sums, batch_of);
  return batch_of;
}

}  // namespace troupe::balancer::rules
