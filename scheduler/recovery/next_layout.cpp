#include "scheduler/recovery/next_layout.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <map>
#include <utility>

#include "runtime/vocabulary/joined.hpp"
#include "scheduler/recovery/layout_choice.hpp"
#include "scheduler/recovery/relayout.hpp"

namespace troupe::scheduler {

namespace {

/// Samples a millisecond of one unit of `microbatches_per_ms`, by the last step; 1 before there
/// is one.
double samples_per_microbatch(const ChangingJob& job) {
  const double present = microbatches_per_ms(job.plan, job.templates);
  if (present <= 0 || job.step_ms <= 0) return 1;
  return static_cast<double>(job.global_batch) / job.step_ms / present;
}

/// A layout to go on with, and what its state would take to get there.
struct Candidate {
  Relayout layout;
  StatePlacement want;
  MoveTotals moves;
};

/// The candidate that loses the fewest samples until nodes change again, and why, in a clause.
/// Where nobody leaves state comes while all train, or soon.
std::pair<std::size_t, std::string> choose(const ChangingJob& job,
                                           const std::vector<Candidate>& candidates,
                                           bool somebody_leaves) {
  if (candidates.size() == 1 || job.network_bytes_per_ms <= 0) return {0, ""};
  const double scale = samples_per_microbatch(job);
  std::vector<LayoutOutlook> outlooks;
  double fastest = 0;
  for (const Candidate& candidate : candidates) {
    const auto least_busiest = static_cast<double>(candidate.moves.least_busiest.count());
    outlooks.push_back({scale * microbatches_per_ms(candidate.layout.plan, job.templates),
                        somebody_leaves ? least_busiest / job.network_bytes_per_ms : 0});
    fastest = std::max(fastest, outlooks.back().samples_per_ms);
  }
  if (fastest <= 0) return {0, ""};
  const std::size_t chosen = choose_layout(outlooks, job.quiet_ms);
  const auto lost = [&](std::size_t i) {
    return std::to_string(std::lround(lost_samples(outlooks[i], fastest, job.quiet_ms)));
  };
  std::vector<std::string> others;
  for (std::size_t i = 0; i < outlooks.size(); ++i)
    if (i != chosen) others.push_back(lost(i));
  return {chosen, "of " + std::to_string(outlooks.size()) +
                      " layouts the one that is predicted to lose the fewest samples in the " +
                      quiet_text(job.quiet_ms) + " until nodes change again: " + lost(chosen) +
                      " instead of " + joined_by_and(others)};
}

Result<Candidate> weighed(const ChangingJob& job, Relayout layout) {
  const Dtype dtype = job.tolerance.dtype;
  Candidate made{std::move(layout), {}, {}};
  made.want = place_state(made.layout.plan, job.parameters, dtype);
  auto moves = total_moves(job.parameters, dtype, job.left, made.want);
  if (!moves.ok()) return std::move(moves).error();
  made.moves = std::move(moves).value();
  if (auto fits = job.fits(made.layout.plan); !fits.ok()) return std::move(fits).error();
  return made;
}

Result<NextLayout> moved_to(const ChangingJob& job, Candidate chosen, std::string why) {
  auto moves = plan_state_moves(job.parameters, job.tolerance.dtype, job.left, chosen.want);
  if (!moves.ok()) return std::move(moves).error();
  return NextLayout{std::move(chosen.layout.plan), std::move(chosen.layout.idle),
                    std::move(moves).value(), std::move(chosen.want), std::move(why)};
}

/// Whether a node of the present layout is none of these.
bool does_somebody_leave(const ChangingJob& job, std::set<NodeId> nodes,
                         const std::set<NodeId>& spares) {
  const std::set<NodeId> present = job.plan.nodes();
  nodes.insert(spares.begin(), spares.end());
  return !std::includes(nodes.begin(), nodes.end(), present.begin(), present.end());
}

/// `2 more layouts cannot be: ...`, of the first of them; empty: there are none.
std::string left_out_text(std::size_t count, const Status& hindrance) {
  if (count == 0) return "";
  return (count == 1 ? "1 more layout" : std::to_string(count) + " more layouts") +
         " cannot be: " + hindrance.error().message;
}

/// With copies on so many nodes.
Result<NextLayout> with_copies(const ChangingJob& job, const std::set<NodeId>& nodes,
                               const std::set<NodeId>& spares, bool somebody_leaves,
                               const Tolerance& tolerance) {
  auto found = relayouts({job.plan, job.cluster, job.templates, job.global_batch, tolerance, nodes,
                          spares, !somebody_leaves, job.looks_further});
  if (!found.ok()) return std::move(found).error();
  std::vector<Candidate> candidates;
  Status hindrance = Done{};  // Of the first that cannot be.
  for (Relayout& layout : found.value()) {
    auto made = weighed(job, std::move(layout));
    if (made.ok())
      candidates.push_back(std::move(made).value());
    else if (hindrance.ok())
      hindrance = made.error();
  }
  if (candidates.empty()) return hindrance.error();
  const std::string left_out = left_out_text(found.value().size() - candidates.size(), hindrance);
  // The layout before gives its state away, and then its memory.
  const auto without_room = std::stable_partition(
      candidates.begin(), candidates.end(),
      [&](const Candidate& one) { return job.fits_beside(one.moves.arriving).ok(); });
  if (without_room != candidates.begin()) candidates.erase(without_room, candidates.end());
  const auto [chosen, why] = choose(job, candidates, somebody_leaves);
  Status room = job.fits_beside(candidates[chosen].moves.arriving);
  const std::string between = why.empty() || left_out.empty() ? "" : "; ";
  auto next = moved_to(job, std::move(candidates[chosen]), why + between + left_out);
  if (next.ok()) next.value().room = std::move(room);
  return next;
}

/// What the loss of a node from the layout would mean: 2 where it has stages, 1 where it stands by.
int weight_of(const ChangingJob& job, NodeId node) {
  for (const Stage& stage : job.plan.stages)
    for (const DeviceId device : stage.devices)
      if (job.plan.devices[device.index()].node == node) return 2;
  return job.working.contains(node) ? 1 : 0;
}

/// Those that may have stages: as many nodes as the job keeps spare have none, the ones that kept
/// nothing before first, and then those that stood by.
std::set<NodeId> without_spares(const ChangingJob& job, std::set<NodeId> nodes) {
  if (job.spares == 0) return nodes;
  const auto most = static_cast<std::size_t>(job.cluster.nodes - job.spares);
  const std::vector<NodeId> all(nodes.rbegin(), nodes.rend());
  for (const int weight : {0, 1, 2})
    for (const NodeId node : all)
      if (nodes.size() > most && weight_of(job, node) == weight) nodes.erase(node);
  return nodes;
}

/// Those of these nodes, which have no stage, that stand by for less than everything.
std::set<NodeId> standing_by_in_part(const ParallelPlan& plan, const std::set<NodeId>& spares) {
  std::map<NodeId, std::size_t> kept;
  for (const Standby& standby : plan.standbys) ++kept[plan.devices[standby.device.index()].node];
  const std::size_t all = state_units(plan.model).size();
  std::set<NodeId> lacking;
  for (const NodeId node : spares)
    if (kept[node] < all) lacking.insert(node);
  return lacking;
}

}  // namespace

Result<NextLayout> next_layout(const ChangingJob& job, const std::set<NodeId>& nodes) {
  const std::set<NodeId> workers = without_spares(job, nodes);
  std::set<NodeId> spares;
  std::set_difference(nodes.begin(), nodes.end(), workers.begin(), workers.end(),
                      std::inserter(spares, spares.end()));
  const bool somebody_leaves = does_somebody_leave(job, workers, spares);
  std::string unkept;  // Why no layout has all copies that are promised.
  for (Tolerance tolerance = job.tolerance;; --tolerance.lost_nodes) {
    auto made = with_copies(job, workers, spares, somebody_leaves, tolerance);
    const bool is_short_of_room =
        made.ok() ? !made.value().room.ok() : made.error().code == Errc::infeasible;
    if (is_short_of_room && !spares.empty())  // The promise comes before what spares keep.
      if (auto bare = with_copies(job, workers, {}, somebody_leaves, tolerance); bare.ok())
        made = std::move(bare);
    if (made.ok()) {
      const std::set<NodeId> used = made.value().plan.nodes();
      std::set_difference(spares.begin(), spares.end(), used.begin(), used.end(),
                          std::inserter(made.value().idle, made.value().idle.end()));
      if (somebody_leaves) made.value().unfilled = standing_by_in_part(made.value().plan, spares);
      std::string& why = made.value().why;
      why += (why.empty() || unkept.empty() ? "" : "; ") + unkept;
    }
    if (made.ok() || made.error().code != Errc::infeasible || tolerance.lost_nodes <= 0)
      return made;
    if (unkept.empty())
      unkept = "copies on " + std::to_string(tolerance.lost_nodes + 1) +
               " nodes, as promised, cannot be: " + made.error().message;
  }
}

double samples_per_ms(const ChangingJob& job, const ParallelPlan& plan) {
  if (job.step_ms <= 0 || microbatches_per_ms(job.plan, job.templates) <= 0) return 0;
  return samples_per_microbatch(job) * microbatches_per_ms(plan, job.templates);
}

std::string quiet_text(double ms) {
  return ms < 1.2e5 ? std::to_string(std::lround(ms / 1e3)) + " s"
                    : std::to_string(std::lround(ms / 6e4)) + " min";
}

void drop_holders(StatePlacement& placement, NodeId lost) {
  for (Shard& shard : placement)
    std::erase_if(shard.holders, [lost](const DeviceSlot& device) { return device.node == lost; });
}

double copy_ms(const StateMoves& moves, Dtype dtype, double network_bytes_per_ms) {
  StateMoves between;
  for (const StateMove& move : moves.moves)
    if (!move.is_from_seed() && move.from.node != move.to.node) between.moves.push_back(move);
  Bytes most{moves.max_sent_bytes};
  for (const auto& [device, bytes] : arriving_bytes(between, dtype)) most = std::max(most, bytes);
  return static_cast<double>(most.count()) / network_bytes_per_ms;
}

}  // namespace troupe::scheduler
