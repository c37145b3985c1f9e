#include "balancer/ranks/post_balance.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "balancer/ranks/post_balance_rules.hpp"
#include "runtime/vocabulary/named_value.hpp"

namespace troupe::balancer {

namespace {

using rules::BatchOf;
using rules::BatchTotals;
using Items = std::vector<LengthItem>;

constexpr std::uint64_t kLengthEnd = std::uint64_t{1} << 32;

constexpr std::array kNames{
    std::pair{PostBalance::no_padding, std::string_view{"no-padding"}},
    std::pair{PostBalance::padding, std::string_view{"padding"}},
    std::pair{PostBalance::quadratic, std::string_view{"quadratic"}},
    std::pair{PostBalance::padded_attention, std::string_view{"padded-attention"}},
    std::pair{PostBalance::no_padding_search, std::string_view{"no-padding-search"}},
    std::pair{PostBalance::quadratic_search, std::string_view{"quadratic-search"}},
    std::pair{PostBalance::padded_attention_search, std::string_view{"padded-attention-search"}},
};

Status check(const RankLengths& lengths, const PostBalanceOptions& options) {
  if (lengths.empty())
    return Error{Errc::invalid_argument, "there must be at least one rank", "lengths", {}};
  // Signs and high bits of all at once; who is wrong is looked for only if someone is.
  std::uint64_t bits = 0;
  for (const auto& rank : lengths)
    for (const auto length : rank) bits |= static_cast<std::uint64_t>(length);
  for (std::size_t rank = 0; bits >= kLengthEnd && rank < lengths.size(); ++rank)
    for (std::size_t i = 0; i < lengths[rank].size(); ++i)
      if (static_cast<std::uint64_t>(lengths[rank][i]) >= kLengthEnd)
        return Error{Errc::invalid_argument,
                     "a length must be in [0, 2^32), found " + std::to_string(lengths[rank][i]),
                     "lengths[" + std::to_string(rank) + "][" + std::to_string(i) + "]",
                     {}};
  const auto is_weight = [](double value) { return std::isfinite(value) && value >= 0; };
  if (!is_weight(options.alpha) || !is_weight(options.beta) || !is_weight(options.tolerance))
    return Error{
        Errc::invalid_argument, "alpha, beta and tolerance must be finite and >= 0", "options", {}};
  return Done{};
}

double largest(const std::vector<double>& loads) {
  return loads.empty() ? 0 : *std::max_element(loads.begin(), loads.end());
}

std::vector<BatchTotals> totals_of(const Items& items, const BatchOf& batch_of,
                                   std::size_t batch_count) {
  std::vector<BatchTotals> totals(batch_count);
  for (std::size_t i = 0; i < items.size(); ++i)
    totals[static_cast<std::size_t>(batch_of[i])].add(items[i].length);
  return totals;
}

std::vector<double> loads_of(const std::vector<BatchTotals>& totals,
                             const PostBalanceOptions& options) {
  std::vector<double> loads;
  loads.reserve(totals.size());
  for (const auto& batch : totals) loads.push_back(rules::load_of(batch, options));
  return loads;
}

BatchOf better(const Items& items, std::size_t batch_count, const PostBalanceOptions& options,
               BatchOf a, BatchOf b) {
  const double load_a = largest(loads_of(totals_of(items, a, batch_count), options));
  const double load_b = largest(loads_of(totals_of(items, b, batch_count), options));
  return load_b < load_a ? std::move(b) : std::move(a);
}

BatchOf assign(const Items& items, std::size_t batch_count, const PostBalanceOptions& options) {
  switch (options.algorithm) {
    case PostBalance::no_padding: return rules::longest_first(items, batch_count);
    case PostBalance::padding: return rules::padded_runs(items, batch_count);
    case PostBalance::quadratic: return rules::quadratic(items, batch_count, options.tolerance);
    case PostBalance::padded_attention: return rules::padded_attention(items, batch_count);
    case PostBalance::no_padding_search: return rules::additive_search(items, batch_count, 1, 0);
    case PostBalance::quadratic_search:
      return rules::additive_search(items, batch_count, options.alpha, options.beta);
    case PostBalance::padded_attention_search: break;
  }
  return better(items, batch_count, options, rules::padded_attention(items, batch_count),
                rules::padded_attention_runs(items, batch_count, options.alpha, options.beta));
}

PostBalance search_variant(PostBalance algorithm) {
  switch (algorithm) {
    case PostBalance::no_padding: return PostBalance::no_padding_search;
    case PostBalance::quadratic: return PostBalance::quadratic_search;
    case PostBalance::padded_attention: return PostBalance::padded_attention_search;
    default: return algorithm;
  }
}

std::vector<std::int32_t> sizes_of(const RankLengths& lengths) {
  std::vector<std::int32_t> sizes;
  sizes.reserve(lengths.size());
  for (const auto& rank : lengths) sizes.push_back(static_cast<std::int32_t>(rank.size()));
  return sizes;
}

PostBalanced rearranged(const RankLengths& lengths, const SortedItems& sorted,
                        const BatchOf& batch_of, const std::vector<BatchTotals>& totals,
                        std::vector<double> loads) {
  std::vector<std::int32_t> offsets{0};
  offsets.reserve(totals.size() + 1);
  for (const auto& batch : totals)
    offsets.push_back(offsets.back() + static_cast<std::int32_t>(batch.count));
  std::vector<std::int32_t> next(offsets.begin(), offsets.end() - 1);
  std::vector<ItemRef> places(sorted.items.size());
  std::vector<std::uint32_t> placed(places.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto position = static_cast<std::size_t>(next[static_cast<std::size_t>(batch_of[i])]++);
    places[position] = sorted.place_of(sorted.items[i].number);
    placed[position] = sorted.items[i].length;
  }
  return {Rearrangement::from_flat(std::move(places), std::move(offsets), sizes_of(lengths)),
          std::move(loads), std::move(placed)};
}

PostBalanced unchanged(const RankLengths& lengths, std::vector<double> loads) {
  std::vector<std::uint32_t> flat;
  for (const auto& rank : lengths)
    for (const auto length : rank) flat.push_back(static_cast<std::uint32_t>(length));
  return {Rearrangement::identity(sizes_of(lengths)), std::move(loads), std::move(flat)};
}

}  // namespace

std::string_view to_string(PostBalance algorithm) { return name_of(kNames, algorithm); }

Result<PostBalance> post_balance_from(std::string_view name) {
  return find_named(kNames, name, "post-balancing algorithm", "algorithm");
}

PostBalance algorithm_for(const PhaseKind& kind, double beta) {
  if (kind.padding) return PostBalance::padding;
  if (kind.padded_attention) return PostBalance::padded_attention_search;
  return beta > 0 ? PostBalance::quadratic_search : PostBalance::no_padding_search;
}

std::vector<double> batch_loads(const RankLengths& lengths, const PostBalanceOptions& options) {
  std::vector<double> loads;
  for (const auto& rank : lengths) {
    BatchTotals totals;
    for (const auto length : rank) totals.add(length);
    loads.push_back(rules::load_of(totals, options));
  }
  return loads;
}

double post_balance_lower_bound(const RankLengths& lengths, const PostBalanceOptions& options) {
  // Every load is at least additive in its items: padding only adds to it.
  double sum = 0;
  double single = 0;
  for (const auto& rank : lengths)
    for (const auto length : rank) {
      BatchTotals one;
      one.add(length);
      sum += rules::load_of(one, options);
      single = std::max(single, rules::load_of(one, options));
    }
  return lengths.empty() ? 0 : std::max(single, sum / static_cast<double>(lengths.size()));
}

Result<PostBalanced> post_balance(const RankLengths& lengths, const PostBalanceOptions& options) {
  if (auto fine = check(lengths, options); !fine.ok()) return fine.error();
  const auto sorted = sorted_by_length(lengths);
  const auto& items = sorted.items;
  auto batch_of = assign(items, lengths.size(), options);
  auto totals = totals_of(items, batch_of, lengths.size());
  auto loads = loads_of(totals, options);
  if (largest(loads) > options.max_load.value_or(HUGE_VAL)) {
    PostBalanceOptions search = options;
    search.algorithm = search_variant(options.algorithm);
    batch_of = assign(items, lengths.size(), search);
    totals = totals_of(items, batch_of, lengths.size());
    loads = loads_of(totals, options);
  }
  auto before = batch_loads(lengths, options);
  const bool keep = largest(before) < largest(loads);
  if (keep) loads = std::move(before);
  if (largest(loads) > options.max_load.value_or(HUGE_VAL))
    return Error{Errc::infeasible,
                 "the largest batch has load " + std::to_string(largest(loads)) +
                     ", above max_load " + std::to_string(*options.max_load) +
                     "; no assignment is below " +
                     std::to_string(post_balance_lower_bound(lengths, options)),
                 "max_load", "use more ranks or smaller batches"};
  if (keep) return unchanged(lengths, std::move(loads));
  return rearranged(lengths, sorted, batch_of, totals, std::move(loads));
}

Result<PostBalanced> post_balance_phase(const RankLengths& lengths, const PhaseKind& kind,
                                        PostBalanceOptions options) {
  const auto improved = algorithm_for(kind, options.beta);
  options.algorithm = improved;
  for (const auto& [published, name] : kNames)
    if (published != improved && search_variant(published) == improved)
      options.algorithm = published;
  auto best = post_balance(lengths, options);
  if (!best.ok() || options.algorithm == improved) return best;
  options.algorithm = improved;
  auto other = post_balance(lengths, options);
  if (other.ok() && largest(other.value().loads) < largest(best.value().loads)) return other;
  return best;
}

}  // namespace troupe::balancer
