// Shares of a round on replicas, so that few bytes go between nodes: the last step of
// phase_exchange, for any number of replicas and any numbers of them on nodes.
//
// Source: OrchMLLM section 5.2.2, for the sum of what all send (README.md says why).
// Pure and deterministic.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "engine/iteration/near_replicas.hpp"
#include "engine/iteration/phase_exchange.hpp"

namespace troupe::engine {

/// A unit of a round that was dealt to a replica, whose share it is part of.
struct DealtUnit {
  std::size_t share = 0;  ///< Which replica, of the group's.
  std::int32_t unit = 0;
  std::size_t cut = 0;  ///< Of which llm replica.
  WantedSample wanted;
};

/// Where shares of a group's rounds are nearest to who wants their rows and sees their content.
/// Keeps the plan and the work, by reference.
class PlacedShares {
 public:
  PlacedShares(const ParallelPlan& plan, ModuleGroupId group, std::span<const LlmCut> cuts,
               const PhaseWork& work);

  /// Per share the replica that takes it instead, none of which then ends after `end_max` but for
  /// rounding; none where no way to place them is found that takes less than as they were dealt. A
  /// byte between nodes counts in full, one inside a node by `PhaseWork::inside_node`, on a device
  /// not at all.
  ///
  /// Exact up to `balancer::kPlacedAtOnce` replicas; beyond, a search (place_shares.hpp), where
  /// what was dealt counts for more than 1 % of all bytes. `near`: as for `keep_near`; `before`:
  /// loads without these units. Cost: O(units x log(units of a share)) and a search of some
  /// milliseconds; exact, O(replicas^2 x log(units of a share) + replicas^3).
  std::optional<std::vector<std::size_t>> place(
      std::span<const DealtUnit> units, std::span<const std::vector<std::size_t>> near,
      double end_max, const balancer::FirstToFinish<double>& before) const;

 private:
  /// A stage that rows leave, or one that takes them.
  struct End {
    NodeId node;
    const Stage* stage = nullptr;
  };
  /// Rows of a unit, on their way to an llm replica.
  struct Sent {
    NodeId node;  ///< Where they are wanted.
    std::size_t cut = 0;
    double bytes = 0;
  };
  struct Share {
    std::vector<Sent> sent;         ///< By node.
    double rows = 0;                ///< Bytes of all of these.
    double content = 0;             ///< Bytes of units whose source not all nodes see.
    std::map<NodeId, double> seen;  ///< Of these what a node sees.
  };

  bool is_worth_placing(std::span<const DealtUnit> units) const;
  std::vector<Share> shares_of(std::span<const DealtUnit> units) const;
  double row_bytes(const DealtUnit& unit) const;
  const ApartUnit* apart(const DealtUnit& unit) const;
  double way(std::size_t cut, std::size_t replica) const;
  double far_bytes(const Share& share, std::size_t replica) const;

  const ParallelPlan& plan_;
  const PhaseWork& work_;
  std::vector<End> made_;         ///< Per replica.
  std::vector<NodeId> begun_on_;  ///< Per replica: the node that reads content.
  std::vector<End> wanted_;       ///< Per cut.
};

}  // namespace troupe::engine
