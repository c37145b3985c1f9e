#include "engine/iteration/placed_shares.hpp"

#include <algorithm>
#include <functional>
#include <limits>

#include "balancer/ranks/place_shares.hpp"
#include "engine/iteration/phase_nodes.hpp"
#include "runtime/vocabulary/index.hpp"
#include "scheduler/iteration/rank_links.hpp"

namespace troupe::engine {

namespace {

// Costs that are asked for per round beyond `kPlacedAtOnce` replicas: a few milliseconds. Half as
// many do for 256 replicas.
constexpr std::int64_t kCostsMax = 100'000;

// Less of all bytes is not worth a search: exchanges would be no shorter for it.
constexpr double kWorthPlacing = 0.01;

/// Per share the homes of its units, that of most bytes first; of equal ones the lower.
std::vector<std::vector<std::size_t>> homes_of(std::span<const DealtUnit> units,
                                               std::size_t count) {
  std::vector<std::map<std::size_t, double>> bytes(count);
  for (const DealtUnit& unit : units) bytes[unit.share][unit.wanted.node] += unit.wanted.bytes;
  std::vector<std::vector<std::size_t>> homes(count);
  for (std::size_t s = 0; s < count; ++s) {
    for (const auto& [home, own] : bytes[s])
      if (own > 0) homes[s].push_back(home);
    std::ranges::stable_sort(homes[s], std::greater<>(),
                             [&](std::size_t home) { return bytes[s].at(home); });
  }
  return homes;
}

}  // namespace

PlacedShares::PlacedShares(const ParallelPlan& plan, ModuleGroupId group,
                           std::span<const LlmCut> cuts, const PhaseWork& work)
    : plan_(plan), work_(work) {
  for (const ReplicaId replica : replicas_of(plan, group)) {
    made_.push_back({made_on(plan, replica), &plan.at(plan.at(replica).stages.back())});
    begun_on_.push_back(begun_on(plan, replica));
  }
  for (const LlmCut& own : cuts)
    wanted_.push_back({wanted_on(plan, group, own.llm), &plan.at(wanted_by(plan, group, own.llm))});
}

double PlacedShares::row_bytes(const DealtUnit& unit) const {
  return work_.rows_of(at(unit.unit)) * work_.bytes_per_row;
}

/// None: all nodes see its source.
const ApartUnit* PlacedShares::apart(const DealtUnit& unit) const {
  const auto found = work_.apart.find(unit.unit);
  return found == work_.apart.end() ? nullptr : &found->second;
}

/// What a byte of rows takes, as a share of what it takes between nodes.
double PlacedShares::way(std::size_t cut, std::size_t replica) const {
  const End &from = made_[replica], &to = wanted_[cut];
  if (from.node != to.node) return 1;
  return scheduler::link_class(plan_, *from.stage, *to.stage) == scheduler::LinkClass::device
             ? 0
             : work_.inside_node;
}

bool PlacedShares::is_worth_placing(std::span<const DealtUnit> units) const {
  double far = 0, all = 0;
  for (const DealtUnit& unit : units) {
    const double rows = row_bytes(unit);
    all += rows;
    far += way(unit.cut, unit.share) * rows;
    const ApartUnit* own = apart(unit);
    if (own == nullptr) continue;
    all += own->content;
    if (!std::ranges::binary_search(own->seen_by, begun_on_[unit.share])) far += own->content;
  }
  return made_.size() <= balancer::kPlacedAtOnce ? far > 0 : far > kWorthPlacing * all;
}

std::vector<PlacedShares::Share> PlacedShares::shares_of(std::span<const DealtUnit> units) const {
  std::vector<Share> shares(made_.size());
  for (const DealtUnit& unit : units) {
    Share& share = shares[unit.share];
    share.sent.push_back({wanted_[unit.cut].node, unit.cut, row_bytes(unit)});
    const ApartUnit* own = apart(unit);
    if (own == nullptr) continue;
    share.content += own->content;
    for (const NodeId node : own->seen_by) share.seen[node] += own->content;
  }
  for (Share& share : shares) {
    std::ranges::stable_sort(share.sent, {}, &Sent::node);
    for (const Sent& sent : share.sent) share.rows += sent.bytes;
  }
  return shares;
}

/// Bytes that go between nodes for a share on a replica, or take as long inside one. All of them
/// less those that need not: sums of the same order, so that nothing is left where none are far.
double PlacedShares::far_bytes(const Share& share, std::size_t replica) const {
  const NodeId node = made_[replica].node;
  double near = 0, inside = 0;
  const auto first = std::ranges::lower_bound(share.sent, node, {}, &Sent::node);
  for (auto sent = first; sent != share.sent.end() && sent->node == node; ++sent) {
    near += sent->bytes;
    inside += way(sent->cut, replica) * sent->bytes;
  }
  const auto seen = share.seen.find(begun_on_[replica]);
  const double read = share.content - (seen == share.seen.end() ? 0 : seen->second);
  return share.rows - near + inside + read;
}

std::optional<std::vector<std::size_t>> PlacedShares::place(
    std::span<const DealtUnit> units, std::span<const std::vector<std::size_t>> near,
    double end_max, const balancer::FirstToFinish<double>& before) const {
  if (!is_worth_placing(units)) return std::nullopt;
  const auto shares = shares_of(units);
  std::vector<double> work(made_.size());
  for (const DealtUnit& unit : units) work[unit.share] += unit.wanted.work;
  const double end_before = end_max * (1 + kSumRounding);
  balancer::SharePlacement problem;
  problem.count = made_.size();
  problem.cost = [&](std::size_t share, std::size_t replica) {
    const double end = (before.load(replica) + work[share]) / before.speed(replica);
    return share != replica && end > end_before ? std::numeric_limits<double>::infinity()
                                                : far_bytes(shares[share], replica);
  };
  if (made_.size() > balancer::kPlacedAtOnce) {
    problem.nodes = near;
    problem.wanted = homes_of(units, made_.size());
  }
  auto places = balancer::place_shares(problem, kCostsMax);
  for (std::size_t s = 0; s < places.size(); ++s)
    if (places[s] != s) return places;
  return std::nullopt;
}

}  // namespace troupe::engine
