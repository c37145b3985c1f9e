#include "engine/iteration/phase_replicas.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>

#include "balancer/ranks/fit_rooms.hpp"
#include "runtime/vocabulary/index.hpp"

namespace troupe::engine {

namespace {

// Of a room that there is not: more than any.
constexpr double kNoRoom = 1e6;

/// A stage as far as it decides what a unit takes of its room.
using StageKind = std::tuple<std::vector<LayerRun>, Parallelism, double>;

std::vector<StageKind> kind_of(const ParallelPlan& plan, const std::vector<double>& rooms,
                               ReplicaId replica) {
  std::vector<StageKind> kind;
  for (const StageId stage : plan.at(replica).stages)
    kind.emplace_back(plan.at(stage).runs, plan.at(stage).grid, rooms[stage.index()]);
  return kind;
}

struct RoomShares {
  std::vector<double> all;      ///< Per unit, on the stage where it takes most.
  std::vector<double> staying;  ///< The same of what is not offloaded.
};

RoomShares room_shares(const ParallelPlan& plan, const scheduler::SimulationCosts& costs,
                       const std::vector<double>& rooms, ReplicaId replica,
                       const PhaseWork& phase) {
  const std::size_t samples = phase.samples.size();
  std::vector<std::int32_t> whole;
  for (std::size_t s = 0; s < samples; ++s)
    if (phase.samples[s] > 0) whole.push_back(static_cast<std::int32_t>(s));
  const std::size_t units = samples + phase.piece_work.size();
  RoomShares shares{std::vector<double>(units), std::vector<double>(units)};
  for (const StageId stage : plan.at(replica).stages) {
    std::vector<double> bytes(units), staying(units);
    double alone = 0;
    for (std::size_t u = 0; u < units; ++u) {
      if (!(phase.work_of(u) > 0)) continue;
      const std::vector<std::int32_t> unit{static_cast<std::int32_t>(u)};
      bytes[u] = costs.activation_bytes(stage, unit);
      staying[u] = bytes[u] - (costs.offloaded_bytes ? costs.offloaded_bytes(stage, unit) : 0);
      if (u < samples) alone += bytes[u];
    }
    const double together = whole.empty() ? 0 : costs.activation_bytes(stage, whole);
    const double scale = alone > 0 ? std::max(1.0, together / alone) : 1;
    const double room = rooms[stage.index()];
    const auto share_of = [&](double kept) {
      if (!(kept > 0)) return 0.0;
      return room > 0 ? std::min(kNoRoom, scale * kept / room) : kNoRoom;
    };
    for (std::size_t u = 0; u < units; ++u) {
      shares.all[u] = std::max(shares.all[u], share_of(bytes[u]));
      shares.staying[u] = std::max(shares.staying[u], share_of(staying[u]));
    }
  }
  return shares;
}

/// `filled`: of the replica's room, by what it has of the round and what found none.
Error no_room(const ParallelPlan& plan, ModuleGroupId group, std::size_t replica, std::size_t round,
              double rows, double filled) {
  // A sum of rows comes back from shares of a room, which are rounded.
  const auto whole = [](double count) { return std::to_string(std::llround(count)); };
  const double room = std::floor(rows / filled * (1 + kSumRounding));
  return {Errc::infeasible,
          "replica " + std::to_string(replicas_of(plan, group)[replica].value) + " of " +
              plan.module_groups[group.index()].name + " would keep at once what makes " +
              whole(rows) + " rows in round " + std::to_string(round) +
              " and has room for that of " + whole(room) +
              "; no other replica of the group has more left",
          "cluster.device_memory_gib",
          "raise it or train.microbatches, or give the encoders more replicas or stages"};
}

}  // namespace

std::vector<std::int32_t> asked_samples(std::span<const double> works) {
  constexpr std::size_t kMost = 256;
  std::vector<std::int32_t> asked;
  for (std::size_t s = 0; s < works.size() && asked.size() < kMost; ++s)
    if (works[s] > 0) asked.push_back(static_cast<std::int32_t>(s));
  return asked;
}

void follow_speeds(const ParallelPlan& plan, const CostCorrection& correction,
                   const StageShares& shares, std::vector<PhaseWork>& phases) {
  for (std::size_t g = 0; g < phases.size(); ++g) {
    const auto replicas = replicas_of(plan, ModuleGroupId{g});
    const auto asked = asked_samples(phases[g].samples);
    for (std::size_t r = 0; r < replicas.size(); ++r)
      phases[g].shares[r] *= correction.slowdown(replicas[r], shares, asked);
  }
}

void bound_rooms(const ParallelPlan& plan, const scheduler::SimulationCosts& costs,
                 const std::vector<double>& rooms, std::vector<PhaseWork>& phases) {
  for (std::size_t g = 0; g + 1 < phases.size(); ++g) {
    PhaseWork& phase = phases[g];
    std::map<std::vector<StageKind>, std::size_t> kinds;  // Most replicas are alike.
    for (const ReplicaId replica : replicas_of(plan, ModuleGroupId{g})) {
      const auto [kind, is_new] = kinds.try_emplace(kind_of(plan, rooms, replica), kinds.size());
      if (is_new) {
        RoomShares shares = room_shares(plan, costs, rooms, replica, phase);
        phase.room_shares.push_back(std::move(shares.all));
        if (costs.offloaded_bytes) phase.staying_shares.push_back(std::move(shares.staying));
      }
      phase.room_kinds.push_back(kind->second);
    }
  }
}

Status fit_units(const ParallelPlan& plan, ModuleGroupId group, const PhaseWork& work,
                 std::span<const RoundUnit> units, balancer::FirstToFinish<double>& loads,
                 std::vector<std::size_t>& chosen) {
  std::vector<balancer::RoomItem> items;
  items.reserve(units.size());
  for (const RoundUnit& unit : units) items.push_back({work.work_of(at(unit.unit)), unit.kept});
  const auto share = [&](std::size_t item, std::size_t replica) {
    return work.room_share(at(units[item].unit), replica);
  };
  const auto left = balancer::fit_rooms(items, share, loads, chosen);
  for (std::size_t i = 0; i < items.size(); ++i) loads.add(chosen[i], items[i].work);
  if (!left) return Done{};
  // What fills a room is about proportional to rows.
  const RoundUnit& unit = units[left->item];
  const double rows = work.rows_of(at(unit.unit)) * left->filled / share(left->item, left->rank);
  return no_room(plan, group, left->rank, unit.round, rows, left->filled);
}

}  // namespace troupe::engine
