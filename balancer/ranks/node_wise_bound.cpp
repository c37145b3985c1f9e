#include "balancer/ranks/node_wise_bound.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

namespace troupe::balancer {

namespace {

// One node's ranks and the batches with something from them.
class NodeDual {
 public:
  NodeDual(const VolumeTable& table, std::size_t begin, std::size_t end,
           std::vector<std::size_t>& column_of)
      : ranks_(end - begin), totals_(ranks_, 0), tilt_(ranks_, 0), weights_(ranks_, 0) {
    std::vector<std::size_t> touched;
    for (std::size_t rank = begin; rank < end; ++rank)
      for (const auto& entry : table.of_rank(rank)) {
        auto& column = column_of[static_cast<std::size_t>(entry.other)];
        if (column == kNone) {
          column = touched.size();
          touched.push_back(static_cast<std::size_t>(entry.other));
          volumes_.resize(volumes_.size() + ranks_, 0);
        }
        const auto volume = static_cast<double>(entry.volume);
        volumes_[column * ranks_ + rank - begin] = volume;
        totals_[rank - begin] += volume;
        largest_ = std::max(largest_, volume);
      }
    for (const auto batch : touched) column_of[batch] = kNone;
    weighted_.resize(touched.size());
  }

  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  double best() const { return best_; }

  // Weights of one rank alone: what it keeps at most is its own c largest.
  void try_single_ranks() {
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      std::fill(weights_.begin(), weights_.end(), 0.0);
      weights_[rank] = 1;
      evaluate();
    }
  }

  void run(std::int32_t rounds) {
    for (std::int32_t round = 0; round < rounds && largest_ > 0; ++round, ++done_) {
      spread_weights();
      const auto sent = evaluate();
      double mean = 0;
      for (std::size_t r = 0; r < ranks_; ++r) mean += weights_[r] * sent[r];
      const double step = 2 / (largest_ * std::sqrt(1.0 + done_));
      for (std::size_t r = 0; r < ranks_; ++r) tilt_[r] += step * (sent[r] - mean);
    }
  }

 private:
  void spread_weights() {
    const double top = *std::max_element(tilt_.begin(), tilt_.end());
    double sum = 0;
    for (std::size_t r = 0; r < ranks_; ++r) sum += weights_[r] = std::exp(tilt_[r] - top);
    for (auto& weight : weights_) weight /= sum;
  }

  // Notes the bound of these weights; what each rank sends when the node keeps the batches that
  // are worth most under them.
  std::vector<double> evaluate() {
    for (std::size_t column = 0; column < weighted_.size(); ++column) {
      double worth = 0;
      for (std::size_t r = 0; r < ranks_; ++r) worth += weights_[r] * volumes_[column * ranks_ + r];
      weighted_[column] = {worth, column};
    }
    const auto kept = std::min(ranks_, weighted_.size());
    const auto end = weighted_.begin() + static_cast<std::ptrdiff_t>(kept);
    if (kept < weighted_.size())
      std::nth_element(weighted_.begin(), end, weighted_.end(), std::greater<>());
    double bound = 0;
    for (std::size_t r = 0; r < ranks_; ++r) bound += weights_[r] * totals_[r];
    auto sent = totals_;
    for (auto column = weighted_.begin(); column != end; ++column) {
      bound -= column->first;
      for (std::size_t r = 0; r < ranks_; ++r) sent[r] -= volumes_[column->second * ranks_ + r];
    }
    best_ = std::max(best_, bound);
    return sent;
  }

  std::size_t ranks_;
  std::vector<double> volumes_;  // [batch with something][rank of the node]
  std::vector<double> totals_;   // Per rank.
  std::vector<double> tilt_;     // Logarithms of the weights, up to a constant.
  std::vector<double> weights_;
  std::vector<std::pair<double, std::size_t>> weighted_;
  double largest_ = 0;
  double best_ = 0;
  std::int32_t done_ = 0;
};

constexpr double kRounding = 1e-12;  // Of sums with weights.
constexpr std::int32_t kFirstRounds = 10;
constexpr double kReach = 0.02;  // What more rounds add at most in all that was measured.

}  // namespace

double node_wise_bound(const VolumeTable& table, const RankNodes& nodes, std::int32_t rounds) {
  std::vector<std::size_t> column_of(table.rank_count(), NodeDual::kNone);
  double bound = 0;
  for (std::size_t n = 0; n < nodes.count(); ++n) {
    NodeDual node(table, nodes.begin(n), nodes.end(n), column_of);
    node.try_single_ranks();
    node.run(std::min(rounds, kFirstRounds));
    if (node.best() >= (1 - kReach) * bound) node.run(rounds - kFirstRounds);
    bound = std::max(bound, node.best());
  }
  return bound * (1 - kRounding);
}

}  // namespace troupe::balancer
