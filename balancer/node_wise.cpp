#include "balancer/node_wise.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <utility>

#include "balancer/node_wise_placement.hpp"
#include "balancer/volume_table.hpp"

namespace troupe::balancer {

namespace {

Status check(const NodeWiseProblem& problem) {
  if (problem.rank_count < 1 || problem.ranks_per_node < 1)
    return Error{Errc::invalid_argument,
                 "there must be at least one rank and one rank per node",
                 "ranks",
                 {}};
  const auto in_range = [&](std::int32_t i) { return i >= 0 && i < problem.rank_count; };
  for (std::size_t i = 0; i < problem.volumes.size(); ++i) {
    const auto& volume = problem.volumes[i];
    const std::string where = "volume " + std::to_string(i);
    if (!in_range(volume.origin_rank) || !in_range(volume.batch))
      return Error{Errc::invalid_argument,
                   "rank " + std::to_string(volume.origin_rank) + " or batch " +
                       std::to_string(volume.batch) + " is not below the " +
                       std::to_string(problem.rank_count) + " ranks",
                   where,
                   {}};
    if (!std::isfinite(volume.volume) || volume.volume < 0)
      return Error{Errc::invalid_argument, "a volume must be a finite number >= 0", where, {}};
  }
  return Done{};
}

// Sum of the `count` largest; reorders.
double sum_of_largest(std::vector<double>& values, std::size_t count) {
  const auto kept = std::min(count, values.size());
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(kept);
  if (kept < values.size())
    std::nth_element(values.begin(), middle, values.end(), std::greater<>());
  return std::accumulate(values.begin(), middle, 0.0);
}

// What a rank, or a node's ranks on average, must send even if its node could choose its batches
// first.
class Bound {
 public:
  Bound(const NodeWiseProblem& problem, const VolumeTable& table)
      : table_(table), of_node_(static_cast<std::size_t>(problem.rank_count), 0) {}

  double of_node(std::size_t begin, std::size_t end) {
    double bound = 0;
    double node_total = 0;
    std::vector<std::size_t> touched;
    for (std::size_t rank = begin; rank < end; ++rank) {
      volumes_.clear();
      for (const auto& entry : table_.of_rank(rank)) {
        const auto batch = static_cast<std::size_t>(entry.other);
        volumes_.push_back(entry.volume);
        if (of_node_[batch] == 0) touched.push_back(batch);
        of_node_[batch] += entry.volume;
      }
      const double total = std::accumulate(volumes_.begin(), volumes_.end(), 0.0);
      bound = std::max(bound, total - sum_of_largest(volumes_, end - begin));
      node_total += total;
    }
    volumes_.clear();
    for (const auto batch : touched) volumes_.push_back(std::exchange(of_node_[batch], 0.0));
    const double kept = sum_of_largest(volumes_, end - begin);
    return std::max(bound, (node_total - kept) / static_cast<double>(end - begin));
  }

 private:
  const VolumeTable& table_;
  std::vector<double> of_node_;  // Volume per batch from the ranks of one node.
  std::vector<double> volumes_;
};

double lower_bound_of(const NodeWiseProblem& problem, const VolumeTable& table) {
  Bound bound(problem, table);
  double largest = 0;
  const auto ranks = static_cast<std::size_t>(problem.rank_count);
  const auto per_node = static_cast<std::size_t>(problem.ranks_per_node);
  for (std::size_t begin = 0; begin < ranks; begin += per_node)
    largest = std::max(largest, bound.of_node(begin, std::min(ranks, begin + per_node)));
  return largest;
}

}  // namespace

std::vector<double> inter_node_volumes(const NodeWiseProblem& problem,
                                       std::span<const std::int32_t> rank_of_batch) {
  std::vector<double> off(static_cast<std::size_t>(problem.rank_count), 0);
  for (const auto& volume : problem.volumes) {
    const auto rank = rank_of_batch[static_cast<std::size_t>(volume.batch)];
    if (rank / problem.ranks_per_node != volume.origin_rank / problem.ranks_per_node)
      off[static_cast<std::size_t>(volume.origin_rank)] += volume.volume;
  }
  return off;
}

NodeWiseProblem node_wise_problem(const Rearrangement& rearrangement, const RankLengths& lengths,
                                  std::int32_t ranks_per_node) {
  NodeWiseProblem problem;
  problem.rank_count = static_cast<std::int32_t>(rearrangement.batch_count());
  problem.ranks_per_node = ranks_per_node;
  problem.volumes.reserve(rearrangement.item_count());
  for (std::size_t b = 0; b < rearrangement.batch_count(); ++b)
    for (const auto& item : rearrangement.batch(b)) {
      const auto length =
          lengths[static_cast<std::size_t>(item.rank)][static_cast<std::size_t>(item.index)];
      problem.volumes.push_back(
          {item.rank, static_cast<std::int32_t>(b), static_cast<double>(length)});
    }
  return problem;
}

Result<NodeWise> assign_node_wise(const NodeWiseProblem& problem, std::int64_t evaluations_max) {
  if (auto fine = check(problem); !fine.ok()) return fine.error();
  const VolumeTable table(problem);
  Placement placement(problem, table);
  placement.rescue_worst();
  placement.swap_while_better(evaluations_max);
  NodeWise result;
  result.rank_of_batch = placement.ranks_of_batches();
  const auto off = inter_node_volumes(problem, result.rank_of_batch);
  result.inter_node_max = *std::max_element(off.begin(), off.end());
  result.inter_node_total = std::accumulate(off.begin(), off.end(), 0.0);
  // The bound's sums are in another order than the volumes'.
  result.lower_bound = std::min(lower_bound_of(problem, table), result.inter_node_max);
  result.optimal = result.inter_node_max <= result.lower_bound * (1 + 1e-9);
  return result;
}

}  // namespace troupe::balancer
