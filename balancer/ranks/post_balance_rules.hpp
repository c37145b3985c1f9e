// The rules behind `post_balance`, one function each, from sorted items to a batch number per item.
// Internal to post-balancing; use post_balance.hpp.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "balancer/ranks/post_balance.hpp"
#include "balancer/ranks/sorted_items.hpp"

namespace troupe::balancer::rules {

/// Batch of each item; items in descending length. REQUIRES everywhere: batch_count >= 1.
using BatchOf = std::vector<std::int32_t>;
using Items = std::span<const LengthItem>;

/// What a batch holds so far, enough for every kind of load.
struct BatchTotals {
  std::int64_t count = 0;
  std::int64_t longest = 0;
  double sum = 0;
  double squares = 0;

  void add(std::int64_t length) {
    ++count;
    longest = longest < length ? length : longest;
    sum += static_cast<double>(length);
    squares += static_cast<double>(length) * static_cast<double>(length);
  }
};

/// The load of a batch under an algorithm's cost.
double load_of(const BatchTotals& totals, const PostBalanceOptions& options);

BatchOf longest_first(Items items, std::size_t batch_count);
BatchOf padded_runs(Items items, std::size_t batch_count);
BatchOf quadratic(Items items, std::size_t batch_count, double tolerance);
BatchOf padded_attention(Items items, std::size_t batch_count);

/// Longest first on alpha l + beta l^2, then moves and swaps.
BatchOf additive_search(Items items, std::size_t batch_count, double alpha, double beta);
/// Runs of the descending items under the least bound on alpha sum + beta count max^2.
BatchOf padded_attention_runs(Items items, std::size_t batch_count, double alpha, double beta);

}  // namespace troupe::balancer::rules
