// Who works on phases, how even they are, and how many of their rows leave a node.

#include <algorithm>
#include <map>

#include "balancer/microbatches/hierarchical.hpp"
#include "engine/iteration/phase_exchange.hpp"
#include "engine/iteration/phase_nodes.hpp"
#include "runtime/vocabulary/index.hpp"

namespace troupe::engine {

namespace {

template <class Visit>
void for_each_sample(const MicrobatchList& list, Visit visit) {
  for (const Microbatch& microbatch : list)
    for (const Part& part : microbatch.parts)
      for (const auto sample : part.samples) visit(at(sample));
}

double load_of(const MicrobatchList& list, const PhaseWork& work) {
  double sum = 0;
  for_each_sample(list, [&](std::size_t unit) { sum += work.work_of(unit); });
  return sum;
}

/// The least rows that leave a node which keeps `room` of the work of these samples, were they
/// divisible: those with the fewest rows for their work. REQUIRES: all have some.
double rows_beyond(std::vector<std::size_t>& samples, double room, const PhaseWork& work) {
  double excess = -room;
  for (const std::size_t s : samples) excess += work.work_of(s);
  std::sort(samples.begin(), samples.end(), [&](std::size_t a, std::size_t b) {
    return work.rows_of(a) * work.work_of(b) < work.rows_of(b) * work.work_of(a);
  });
  double rows = 0;
  for (const std::size_t s : samples) {
    if (!(excess > 0)) break;
    const double part = std::min(1.0, excess / work.work_of(s));
    rows += part * work.rows_of(s);
    excess -= part * work.work_of(s);
  }
  return rows;
}

}  // namespace

std::vector<ReplicaId> replicas_of(const ParallelPlan& plan, ModuleGroupId group) {
  std::vector<ReplicaId> found;
  for (std::size_t r = 0; r < plan.replicas.size(); ++r)
    if (plan.replicas[r].group == group) found.emplace_back(r);
  return found;
}

double largest_load(std::span<const MicrobatchList> lists, const PhaseWork& work) {
  double largest = 0;
  for (std::size_t r = 0; r < lists.size(); ++r)
    largest = std::max(largest, load_of(lists[r], work) * work.shares[r]);
  return largest;
}

double even_load(const PhaseWork& work) {
  double total = 0, speeds = 0;
  for (const double sample : work.samples) total += sample;
  for (const double share : work.shares) speeds += 1 / share;
  return total / speeds;
}

std::int64_t shared_microbatches(std::span<const PhaseWork> encoders, std::int64_t microbatches,
                                 bool in_pieces) {
  double even = 0, longest = 0;
  for (const PhaseWork& phase : encoders) {
    double largest = 0;
    for (std::size_t s = 0; s < phase.samples.size(); ++s)
      if (!in_pieces || !phase.cut.contains(static_cast<std::int32_t>(s)))
        largest = std::max(largest, phase.samples[s]);
    if (in_pieces)
      for (const double piece : phase.piece_work) largest = std::max(largest, piece);
    const double fastest = *std::min_element(phase.shares.begin(), phase.shares.end());
    even = std::max(even, even_load(phase));
    longest = std::max(longest, largest * fastest);
  }
  return balancer::effective_microbatches(even, longest, microbatches);
}

FarRows far_rows(const ParallelPlan& plan, ModuleGroupId group,
                 std::span<const MicrobatchList> microbatches, const PhaseWork& work) {
  FarRows found;
  if (group.index() + 1 == plan.module_groups.size()) return found;
  std::vector<NodeId> wanted(work.samples.size() + work.piece_work.size());
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    if (!plan.is_llm(ReplicaId{r})) continue;
    const NodeId node = wanted_on(plan, group, ReplicaId{r});
    for_each_sample(microbatches[r], [&](std::size_t s) { wanted[s] = node; });
  }
  for (const auto& [sample, pieces] : work.cut)
    for (const auto piece : pieces) wanted[at(piece)] = wanted[at(sample)];
  std::map<NodeId, double> room;  // Work that a node's replicas do in an even phase.
  std::map<NodeId, std::vector<std::size_t>> wanting;
  double total = 0, speeds = 0, rows = 0, far = 0;
  const auto replicas = replicas_of(plan, group);
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    const NodeId node = made_on(plan, replicas[i]);
    room[node] += 1 / work.shares[i];
    speeds += 1 / work.shares[i];
    for_each_sample(microbatches[replicas[i].index()], [&](std::size_t s) {
      if (!(work.work_of(s) > 0)) return;
      total += work.work_of(s);
      rows += work.rows_of(s);
      if (wanted[s] != node) far += work.rows_of(s);
      wanting[wanted[s]].push_back(s);
    });
  }
  if (!(rows > 0)) return found;
  double least = 0;
  for (auto& [node, samples] : wanting)
    least += rows_beyond(samples, room[node] / speeds * total, work);
  return {far / rows, least / rows};
}

PhaseBalance phase_balance(const ParallelPlan& plan, ModuleGroupId group,
                           std::span<const MicrobatchList> microbatches, const PhaseWork& work) {
  const auto replicas = replicas_of(plan, group);
  double dealt = 0, largest = 0, speeds = 0;
  for (const double share : work.shares) speeds += 1 / share;
  double busiest = 0;
  for (std::size_t r = 0; r < replicas.size(); ++r) {
    const MicrobatchList& list = microbatches[replicas[r].index()];
    busiest = std::max(busiest, load_of(list, work) * work.shares[r]);
    for_each_sample(list, [&](std::size_t unit) {
      dealt += work.work_of(unit);
      largest = std::max(largest, work.work_of(unit));
    });
  }
  if (!(dealt > 0)) return {};
  // Pieces need not take as much together as their sample.
  const double mean = dealt / speeds;
  double drawn = 0;
  for (std::size_t r = 0; r < replicas.size(); ++r) {
    const std::size_t begin = r * work.samples.size() / replicas.size();
    const std::size_t end = (r + 1) * work.samples.size() / replicas.size();
    double sum = 0;
    for (std::size_t s = begin; s < end; ++s) sum += work.samples[s];
    drawn = std::max(drawn, sum * work.shares[r]);
  }
  const double fastest = *std::min_element(work.shares.begin(), work.shares.end());
  return {drawn / even_load(work), busiest / mean, std::max(1.0, largest * fastest / mean)};
}

}  // namespace troupe::engine
