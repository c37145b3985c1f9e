#include "balancer/ranks/node_wise.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <utility>

#include "balancer/ranks/node_wise_bound.hpp"
#include "balancer/ranks/node_wise_placement.hpp"
#include "balancer/ranks/rank_nodes.hpp"
#include "balancer/ranks/volume_table.hpp"

namespace troupe::balancer {

namespace {

Status check_ranks(std::int64_t ranks, std::int64_t ranks_per_node) {
  if (ranks >= 1 && ranks_per_node >= 1) return Done{};
  return Error{
      Errc::invalid_argument, "there must be at least one rank and one rank per node", "ranks", {}};
}

// Nodes of unlike numbers of ranks.
Status check_nodes(const NodeWiseProblem& problem) {
  std::int64_t ranks = 0;
  for (std::size_t node = 0; node < problem.node_ranks.size(); ++node) {
    if (problem.node_ranks[node] < 1)
      return Error{Errc::invalid_argument,
                   "node " + std::to_string(node) + " must have at least one rank, not " +
                       std::to_string(problem.node_ranks[node]),
                   "node_ranks",
                   {}};
    ranks += problem.node_ranks[node];
  }
  if (ranks == problem.rank_count) return Done{};
  return Error{Errc::invalid_argument,
               "nodes have " + std::to_string(ranks) + " ranks together, but there are " +
                   std::to_string(problem.rank_count),
               "node_ranks",
               {}};
}

Status check(const NodeWiseProblem& problem) {
  const bool alike = problem.node_ranks.empty();
  if (auto fine = check_ranks(problem.rank_count, alike ? problem.ranks_per_node : 1); !fine.ok())
    return fine;
  if (auto fine = alike ? Status(Done{}) : check_nodes(problem); !fine.ok()) return fine;
  const auto in_range = [&](std::int32_t i) { return i >= 0 && i < problem.rank_count; };
  const auto wrong = [](std::size_t index, std::string message) {
    return Error{Errc::invalid_argument, std::move(message), "volume " + std::to_string(index), {}};
  };
  for (std::size_t i = 0; i < problem.volumes.size(); ++i) {
    const auto& volume = problem.volumes[i];
    if (!in_range(volume.origin_rank) || !in_range(volume.batch))
      return wrong(i, "rank " + std::to_string(volume.origin_rank) + " or batch " +
                          std::to_string(volume.batch) + " is not below the " +
                          std::to_string(problem.rank_count) + " ranks");
    if (!std::isfinite(volume.volume) || volume.volume < 0)
      return wrong(i, "a volume must be a finite number >= 0");
  }
  return Done{};
}

Status check(const PostBalanced& balanced, std::int32_t ranks_per_node) {
  const auto& from = balanced.rearrangement;
  const auto ranks = static_cast<std::int64_t>(from.batch_count());
  if (auto fine = check_ranks(ranks, ranks_per_node); !fine.ok()) return fine;
  if (from.source_count() <= from.batch_count() && balanced.lengths.size() == from.item_count())
    return Done{};
  return Error{Errc::invalid_argument,
               "there must be as many batches as ranks, and a length for every item",
               "rearrangement",
               {}};
}

// Sums of rounded volumes may be above the true ones.
double certain(double bound, const VolumeTable& table) {
  return table.exact() ? bound : bound * (1 - 1e-6);
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
// first. Most ranks cannot be the worst and are passed over.
class Bound {
 public:
  explicit Bound(const VolumeTable& table) : table_(table), of_batch_(table.rank_count(), 0) {
    for (std::size_t rank = 0; rank < of_batch_.size(); ++rank) {
      totals_.push_back(0);
      for (const auto& entry : table_.of_rank(rank))
        totals_.back() += static_cast<double>(entry.volume);
    }
  }

  double run(const RankNodes& nodes) {
    std::vector<std::size_t> order(totals_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](auto a, auto b) { return totals_[a] > totals_[b]; });
    for (const auto rank : order) add_rank(rank, nodes.size(nodes.of(rank)));
    for (std::size_t node = 0; node < nodes.count(); ++node)
      add_node(nodes.begin(node), nodes.end(node));
    return bound_;
  }

 private:
  void add_rank(std::size_t rank, std::size_t kept) {
    const auto row = table_.of_rank(rank);
    if (totals_[rank] - run_maxima(row, kept) <= bound_) return;
    volumes_.clear();
    for (const auto& entry : row) volumes_.push_back(static_cast<double>(entry.volume));
    bound_ = std::max(bound_, totals_[rank] - sum_of_largest(volumes_, kept));
  }

  // The largest of each of `count` runs of the row: no more than the `count` largest of all.
  static double run_maxima(std::span<const VolumeTable::Entry> row, std::size_t count) {
    const std::size_t length = (row.size() + count - 1) / count;
    double sum = 0;
    for (std::size_t begin = 0; begin < row.size(); begin += length) {
      float largest = 0;
      for (const auto& entry : row.subspan(begin, std::min(length, row.size() - begin)))
        largest = std::max(largest, entry.volume);
      sum += static_cast<double>(largest);
    }
    return sum;
  }

  void add_node(std::size_t begin, std::size_t end) {
    const auto ranks = static_cast<double>(end - begin);
    double total = 0;
    for (std::size_t rank = begin; rank < end; ++rank) total += totals_[rank];
    if (total <= bound_ * ranks) return;
    // The node keeps at least what its first rank would keep for itself.
    volumes_.clear();
    for (const auto& entry : table_.of_rank(begin))
      volumes_.push_back(static_cast<double>(entry.volume));
    if ((total - sum_of_largest(volumes_, end - begin)) / ranks <= bound_) return;
    touched_.clear();
    for (std::size_t rank = begin; rank < end; ++rank)
      for (const auto& entry : table_.of_rank(rank)) {
        const auto batch = static_cast<std::size_t>(entry.other);
        if (of_batch_[batch] == 0) touched_.push_back(batch);
        of_batch_[batch] += static_cast<double>(entry.volume);
      }
    volumes_.clear();
    for (const auto batch : touched_) volumes_.push_back(std::exchange(of_batch_[batch], 0.0));
    bound_ = std::max(bound_, (total - sum_of_largest(volumes_, end - begin)) / ranks);
  }

  const VolumeTable& table_;
  std::vector<double> of_batch_;  // Volume per batch from the ranks of one node.
  std::vector<double> totals_;
  std::vector<double> volumes_;
  std::vector<std::size_t> touched_;
  double bound_ = 0;
};

Placement placed(const VolumeTable& table, const RankNodes& nodes, std::int64_t evaluations_max) {
  Placement placement(table, nodes);
  placement.rescue_worst();
  placement.swap_while_better(evaluations_max);
  return placement;
}

std::vector<std::size_t> nodes_of(std::span<const std::int32_t> rank_of_batch,
                                  const RankNodes& nodes) {
  std::vector<std::size_t> found;
  found.reserve(rank_of_batch.size());
  for (const auto rank : rank_of_batch) found.push_back(nodes.of(static_cast<std::size_t>(rank)));
  return found;
}

NodeWise judged(std::vector<std::int32_t> rank_of_batch, std::span<const double> off,
                const VolumeTable& table, const RankNodes& nodes) {
  NodeWise result;
  result.rank_of_batch = std::move(rank_of_batch);
  result.inter_node_max = *std::max_element(off.begin(), off.end());
  result.inter_node_total = std::accumulate(off.begin(), off.end(), 0.0);
  const double bound = Bound(table).run(nodes);
  result.lower_bound = std::min(certain(bound, table), result.inter_node_max);
  result.optimal = result.inter_node_max <= result.lower_bound * (1 + 1e-9);
  return result;
}

}  // namespace

std::vector<double> inter_node_volumes(const NodeWiseProblem& problem,
                                       std::span<const std::int32_t> rank_of_batch) {
  std::vector<double> off(static_cast<std::size_t>(problem.rank_count), 0);
  const RankNodes nodes(problem);
  const auto node_of_batch = nodes_of(rank_of_batch, nodes);
  for (const auto& volume : problem.volumes) {
    const auto rank = static_cast<std::size_t>(volume.origin_rank);
    const auto batch = static_cast<std::size_t>(volume.batch);
    off[rank] += node_of_batch[batch] == nodes.of(rank) ? 0 : volume.volume;
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
  const RankNodes nodes(problem);
  auto rank_of = placed(table, nodes, evaluations_max).ranks_of_batches();
  const auto off = inter_node_volumes(problem, rank_of);
  return judged(std::move(rank_of), off, table, nodes);
}

Result<NodeWise> assign_node_wise(const PostBalanced& balanced, std::int32_t ranks_per_node,
                                  std::int64_t evaluations_max) {
  const auto& from = balanced.rearrangement;
  if (auto fine = check(balanced, ranks_per_node); !fine.ok()) return fine.error();
  const VolumeTable table(balanced);
  const RankNodes nodes(from.batch_count(), ranks_per_node);
  const auto placement = placed(table, nodes, evaluations_max);
  auto rank_of = placement.ranks_of_batches();
  // Sums of integers: in whatever order they were added, they are the same.
  if (table.exact()) return judged(std::move(rank_of), placement.sent(), table, nodes);
  const auto node_of_batch = nodes_of(rank_of, nodes);
  std::vector<double> off(rank_of.size(), 0);
  std::size_t position = 0;
  for (std::size_t batch = 0; batch < from.batch_count(); ++batch)
    for (const auto& item : from.batch(batch)) {
      const double volume = balanced.lengths[position++];
      const auto rank = static_cast<std::size_t>(item.rank);
      off[rank] += node_of_batch[batch] == nodes.of(rank) ? 0 : volume;
    }
  return judged(std::move(rank_of), off, table, nodes);
}

Result<double> node_wise_lower_bound(const NodeWiseProblem& problem) {
  if (auto fine = check(problem); !fine.ok()) return fine.error();
  const VolumeTable table(problem);
  return certain(node_wise_bound(table, RankNodes(problem)), table);
}

Result<double> node_wise_lower_bound(const PostBalanced& balanced, std::int32_t ranks_per_node) {
  if (auto fine = check(balanced, ranks_per_node); !fine.ok()) return fine.error();
  const VolumeTable table(balanced);
  const RankNodes nodes(balanced.rearrangement.batch_count(), ranks_per_node);
  return certain(node_wise_bound(table, nodes), table);
}

}  // namespace troupe::balancer
