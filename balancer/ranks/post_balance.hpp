// Post-balancing: after every data-parallel rank has drawn its batch, exchanges items between the
// ranks so that the most loaded rank of one phase (an encoder or the LLM) has as little as
// possible.
//
// Pure and deterministic: every rank that knows all lengths computes the same rearrangement.
// OrchMLLM section 5.1 and appendix A, with the slips in print corrected as cases.md says.

#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "balancer/ranks/rearrangement.hpp"

namespace troupe::balancer {

/// How a phase batches its items, and by which rule they are spread. n items, d ranks.
enum class PostBalance : std::uint8_t {
  /// Algorithm 1, load sum(l): longest first to the least sum. At most 4/3 - 1/(3d) times the
  /// optimum. O(n log d).
  no_padding,
  /// Algorithm 2, load count * max(l): the least bound for which runs of the sorted items fill at
  /// most d batches, by binary search from l_max to l_max * ceil(n/d). Optimal: for a given bound
  /// some best partition is made of runs. O(n + d log n log(n l_max)).
  padding,
  /// Algorithm 4, load alpha sum(l) + beta sum(l^2): longest first to the least sum of squares
  /// among the batches whose sum is within `tolerance` of the smallest. No bound. O(n log d).
  quadratic,
  /// Algorithm 5, load alpha sum(l) + beta count * max(l)^2: longest first into batches whose
  /// padded length stays within algorithm 1's largest sum; the rest to the least sum. No bound.
  padded_attention,
  /// Algorithm 1, then moves and swaps out of the most loaded batch while that helps.
  no_padding_search,
  /// Longest first to the least load, the load being additive; then moves and swaps. At most
  /// 4/3 - 1/(3d) times the optimum, where algorithm 4 has no bound.
  quadratic_search,
  /// The least bound on the load for which runs of the descending items fill at most d batches, or
  /// algorithm 5 where that is better.
  padded_attention_search,
};

/// Name in `troupe solve`: `no-padding`, `padded-attention-search` and so on.
std::string_view to_string(PostBalance algorithm);
/// The algorithm of this name. Errors: not_found, naming the nearest one.
Result<PostBalance> post_balance_from(std::string_view name);

struct PostBalanceOptions {
  PostBalance algorithm = PostBalance::no_padding;
  double alpha = 1;      ///< Cost per token; finite, >= 0.
  double beta = 0;       ///< Cost per squared token; finite, >= 0.
  double tolerance = 0;  ///< Tokens; `quadratic` only; >= 0.
  /// No batch may have a larger load (in the load's unit); stands for memory. None: unbounded.
  std::optional<double> max_load = std::nullopt;
};

struct PostBalanced {
  Rearrangement rearrangement;
  std::vector<double> loads;           ///< Per new batch.
  std::vector<std::uint32_t> lengths;  ///< Of all items, batch after batch.
};

/// Item lengths by rank; `lengths[rank][index]` in tokens, 0 <= length < 2^32.
using RankLengths = std::vector<std::vector<std::int64_t>>;

/// Spreads all items over as many batches as there are ranks. Fewer items than ranks is ordinary:
/// some batches stay empty. Never worse than the input: where the algorithm's largest load is
/// above that of the batches as drawn, they stay. Ties: equal lengths by rank, then index; equal
/// batches by number. Where the published algorithm breaks `max_load`, its search variant is tried.
///
/// Errors:
/// - invalid_argument: no ranks, a length outside its range, a bad alpha, beta or tolerance.
/// - infeasible: the largest load found exceeds `max_load`; names both and the lower bound.
Result<PostBalanced> post_balance(const RankLengths& lengths, const PostBalanceOptions& options);

/// What a phase needs: `padding` for count * max(l), else `padded_attention` or the flash kind.
struct PhaseKind {
  bool padding = false;
  bool padded_attention = false;
};

/// The algorithm for a phase, the improved one where there is one.
PostBalance algorithm_for(const PhaseKind& kind, double beta);

/// `post_balance` with the phase's algorithm and its published one, whichever loads the most loaded
/// rank less (ties: the published); `options.algorithm` is not read. Errors: as `post_balance`.
Result<PostBalanced> post_balance_phase(const RankLengths& lengths, const PhaseKind& kind,
                                        PostBalanceOptions options);

/// No assignment has a smaller largest load than this. Cost: O(n).
double post_balance_lower_bound(const RankLengths& lengths, const PostBalanceOptions& options);

/// Loads of the batches as they are.
std::vector<double> batch_loads(const RankLengths& lengths, const PostBalanceOptions& options);

}  // namespace troupe::balancer
