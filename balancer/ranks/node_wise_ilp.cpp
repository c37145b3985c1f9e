// OrchMLLM algorithm 3 through CBC.

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "balancer/loads/cbc_solver.hpp"
#include "balancer/ranks/node_wise.hpp"
#include "balancer/ranks/rank_nodes.hpp"

namespace troupe::balancer {

namespace {

// Column 0 is the maximum; column 1 + b * nodes + k says that batch b stands on node k.
class NodeProgram {
 public:
  explicit NodeProgram(const NodeWiseProblem& problem)
      : problem_(problem),
        rank_nodes_(problem),
        ranks_(problem.rank_count),
        nodes_(static_cast<std::int32_t>(rank_nodes_.count())) {}

  std::int64_t binaries() const { return std::int64_t{ranks_} * nodes_; }

  LinearProgram build(double lower_bound, double scale) const {
    using Sense = LinearProgram::Sense;
    LinearProgram program;
    program.add_column(1, lower_bound / scale, 1 + 1e-9, false);
    for (std::int64_t i = 0; i < binaries(); ++i) program.add_column(0, 0, 1, true);
    for (std::int32_t b = 0; b < ranks_; ++b) {
      std::vector<LinearProgram::Term> once;
      for (std::int32_t k = 0; k < nodes_; ++k) once.push_back({column(b, k), 1});
      program.add_row(std::move(once), Sense::equal, 1);
    }
    for (std::int32_t k = 0; k < nodes_; ++k) {
      std::vector<LinearProgram::Term> room;
      for (std::int32_t b = 0; b < ranks_; ++b) room.push_back({column(b, k), 1});
      const auto ranks = static_cast<double>(rank_nodes_.size(static_cast<std::size_t>(k)));
      program.add_row(std::move(room), Sense::equal, ranks);
    }
    add_rank_rows(program, scale);
    return program;
  }

  std::vector<double> write(const std::vector<std::int32_t>& rank_of_batch) const {
    std::vector<double> values(1 + static_cast<std::size_t>(binaries()), 0);
    values[0] = 1;
    for (std::int32_t b = 0; b < ranks_; ++b) {
      const auto rank = rank_of_batch[static_cast<std::size_t>(b)];
      values[static_cast<std::size_t>(column(b, node_of(rank)))] = 1;
    }
    return values;
  }

  std::vector<std::int32_t> read(const std::vector<double>& values) const {
    std::vector<std::int32_t> next(static_cast<std::size_t>(nodes_));
    for (std::size_t k = 0; k < next.size(); ++k)
      next[k] = static_cast<std::int32_t>(rank_nodes_.begin(k));
    std::vector<std::int32_t> rank_of(static_cast<std::size_t>(ranks_), 0);
    for (std::int32_t b = 0; b < ranks_; ++b)
      for (std::int32_t k = 0; k < nodes_; ++k)
        if (values[static_cast<std::size_t>(column(b, k))] > 0.5)
          rank_of[static_cast<std::size_t>(b)] = next[static_cast<std::size_t>(k)]++;
    return rank_of;
  }

 private:
  std::int32_t column(std::int32_t batch, std::int32_t node) const {
    return 1 + batch * nodes_ + node;
  }
  std::int32_t node_of(std::int32_t rank) const {
    return static_cast<std::int32_t>(rank_nodes_.of(static_cast<std::size_t>(rank)));
  }

  // What a rank sends in all, less what stays on its node, is at most the maximum.
  void add_rank_rows(LinearProgram& program, double scale) const {
    std::vector<std::map<std::int32_t, double>> rows(static_cast<std::size_t>(ranks_));
    for (const auto& volume : problem_.volumes)
      rows[static_cast<std::size_t>(volume.origin_rank)][volume.batch] += volume.volume / scale;
    for (std::int32_t rank = 0; rank < ranks_; ++rank) {
      std::vector<LinearProgram::Term> stays{{0, -1}};
      double total = 0;
      for (const auto& [batch, volume] : rows[static_cast<std::size_t>(rank)]) {
        total += volume;
        stays.push_back({column(batch, node_of(rank)), -volume});
      }
      program.add_row(std::move(stays), LinearProgram::Sense::at_most, -total);
    }
  }

  const NodeWiseProblem& problem_;
  RankNodes rank_nodes_;
  std::int32_t ranks_;
  std::int32_t nodes_;
};

void solve(const NodeWiseProblem& problem, double time_limit_ms, NodeWise& best) {
  const NodeProgram node_program(problem);
  const double scale = best.inter_node_max;
  if (node_program.binaries() > kNodeWiseBinariesMax || scale <= 0) return;
  const auto program = node_program.build(best.lower_bound, scale);
  if (const auto relaxed = solve_relaxation(program, time_limit_ms / 2); relaxed.ok())
    best.lower_bound = std::max(best.lower_bound, std::min(1.0, relaxed.value()) * scale);
  const auto solution = solve_program(program, {.time_ms = time_limit_ms / 2},
                                      node_program.write(best.rank_of_batch));
  if (!solution.ok()) return;
  const auto rank_of = node_program.read(solution.value().values);
  const auto off = inter_node_volumes(problem, rank_of);
  const double largest = *std::max_element(off.begin(), off.end());
  if (largest < best.inter_node_max) {
    best.rank_of_batch = rank_of;
    best.inter_node_max = largest;
    best.inter_node_total = std::accumulate(off.begin(), off.end(), 0.0);
  }
  best.optimal = solution.value().optimal;
  const double bound = best.optimal ? best.inter_node_max : solution.value().bound * scale;
  best.lower_bound = std::min(std::max(best.lower_bound, bound), best.inter_node_max);
}

}  // namespace

Result<NodeWise> assign_node_wise_ilp(const NodeWiseProblem& problem, double time_limit_ms) {
  if (!(time_limit_ms > 0) || !std::isfinite(time_limit_ms))
    return Error{Errc::invalid_argument,
                 "the time limit must be a finite number of ms > 0",
                 "time_limit_ms",
                 {}};
  auto result = assign_node_wise(problem);
  if (!result.ok() || result.value().optimal) return result;
  auto& found = result.value();
  const auto bound = node_wise_lower_bound(problem);
  if (bound.ok())
    found.lower_bound = std::min(std::max(found.lower_bound, bound.value()), found.inter_node_max);
  solve(problem, time_limit_ms, found);
  return result;
}

}  // namespace troupe::balancer
