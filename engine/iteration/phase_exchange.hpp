// Each phase balanced on its own: which replica of an encoder's group works on which sample,
// whatever llm replica trains it.
//
// Source: OrchMLLM sections 5.1 and 6. Its items are drawn by the ranks and moved; here every node
// sees the data and decodes what it needs after this was decided, so only encoded rows move, once,
// from where they are made to where the llm wants them, and gradients the way back.
// Pure and deterministic.

#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "balancer/loads/sum_rounding.hpp"
#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/iteration/deal_microbatches.hpp"

namespace troupe::engine {

/// A unit whose source of data some nodes do not see.
struct ApartUnit {
  std::vector<NodeId> seen_by;  ///< Ascending; not empty.
  double content = 0;           ///< Bytes that go to a replica which begins on another node.
};

/// What a phase, the work of one module group, takes.
struct PhaseWork {
  /// Per sample of the batch: of all the group's layers, forward and backward; 0: none of its
  /// media are for this group. Any unit.
  std::vector<double> samples;
  std::vector<double> rows;  ///< Per sample: what the group hands on of it.
  /// Per replica of the group, in the plan's order: which share of a sample's work, which is
  /// weighed at `module_degrees`, its busiest device takes: 1 / its speed. All > 0.
  std::vector<double> shares;
  std::vector<double> piece_work = {};  ///< As `samples`, per piece; 0 of those for other groups.
  std::vector<double> piece_rows = {};  ///< As `rows`, per piece.
  /// Samples that this group may take in pieces: the units that these are.
  std::map<std::int32_t, std::vector<std::int32_t>> cut = {};
  std::map<std::int32_t, ApartUnit> apart = {};  ///< By unit.
  double bytes_per_row = 1;  ///< That a row takes between nodes, its gradient included.
  /// What a byte takes between devices of a node, as a share of what it takes between nodes.
  double inside_node = 0;
  /// Per kind of replica and unit: which share it takes of what a replica of that kind has room for
  /// at once; >= 0. Empty: nobody bounds memory.
  std::vector<std::vector<double>> room_shares = {};
  /// Of these what is there beside another microbatch too: the rest is in host memory then. Empty:
  /// all of it.
  std::vector<std::vector<double>> staying_shares = {};
  std::vector<std::size_t> room_kinds = {};  ///< Per replica of the group.

  double room_share(std::size_t unit, std::size_t replica) const {
    return room_shares[room_kinds[replica]][unit];
  }
  double staying_share(std::size_t unit, std::size_t replica) const {
    return (staying_shares.empty() ? room_shares : staying_shares)[room_kinds[replica]][unit];
  }
  double work_of(std::size_t unit) const {
    return unit < samples.size() ? samples[unit] : piece_work[unit - samples.size()];
  }
  double rows_of(std::size_t unit) const {
    return unit < rows.size() ? rows[unit] : piece_rows[unit - rows.size()];
  }
};

/// The samples of one llm replica, cut.
struct LlmCut {
  ReplicaId llm;
  scheduler::ReplicaCut cut;
};

/// The replicas of a group in the whole plan, in its order.
std::vector<ReplicaId> replicas_of(const ParallelPlan& plan, ModuleGroupId group);

using balancer::kSumRounding;

/// How a phase is spread over replicas.
struct SpreadRules {
  /// A microbatch has one part per llm microbatch that it feeds, the one needed first in front;
  /// else one.
  bool splits_parts = false;
  bool in_pieces = true;  ///< Samples that are cut (`PhaseWork::cut`) go piece by piece.
  /// All rounds together: where no llm begins before the encoders are through with all of them, how
  /// even single rounds are does not matter.
  bool at_once = false;
  bool in_windows = false;  ///< As `have_room` has it.
};

/// The microbatches of a group's replicas (in the order of `replicas_of`), its samples spread by
/// `work`. Rounds stay as they were cut: the k-th encoder microbatches of all llm replicas together
/// are spread (or, `at_once`, those of all rounds), the largest sample first, each to the replica
/// that would then have the least of this and all rounds before (post-balancing's algorithm 1,
/// OrchMLLM section 5.1, with replicas of different speed). Where the llm's node has replicas of
/// the group samples stay there instead (near_replicas.hpp), as long as the last replica ends at
/// most 1 % later for it; samples that few nodes see, where their content is, if their rows are
/// fewer bytes. Then replicas take each other's shares of the round where bytes take less over
/// links for it, and none ends later than the last (placed_shares.hpp): as little as by any
/// placement of these shares, of more than 64 as little as a search finds. Where the group has
/// fewer replicas than the llm, a replica's share of a round is as many microbatches as one of them
/// feeds llm replicas, samples of the same llm replica side by side.
///
/// Samples without work are kept out of the way: they go with the first part of one that has some.
///
/// Bound: no replica gets more than an even share of each of its rounds and the largest unit, and
/// 1 % of that where rows stay on their node. Ties: equal samples by number, equal replicas the
/// lower one. Cost: O(samples x (log(samples) + log(replicas) x speeds that differ + replicas of
/// the group on a node) + rounds x (replicas^3, or a search of some milliseconds)).
/// REQUIRES: a work for every unit of the cuts, a share for every replica.
///
/// Where `room_shares` say how much room there is, what a replica keeps of a round at once has room
/// there (`have_room`), and the bound above does not hold. A deal with room for all is as without.
/// Else one is looked for that has room for all of each round, so that it has however shares are
/// cut and whatever is offloaded; where there is none, and shares are several microbatches, one
/// that has room for what each microbatch of the llm takes, which then has microbatches of its own
/// if need be.
///
/// Errors: infeasible: as `fit_units`, of the first round for which no deal was found; never
/// without `room_shares`.
Result<std::vector<MicrobatchList>> spread_within_rooms(const ParallelPlan& plan,
                                                        ModuleGroupId group,
                                                        std::span<const LlmCut> cuts,
                                                        const PhaseWork& work, SpreadRules rules);

/// Largest over mean load of the replicas of a phase; a replica's load is the time of its busiest
/// stage, and the mean what all would take that shared the work out evenly. All >= 1 but for
/// rounding; 1 where there is no work.
struct PhaseBalance {
  double drawn = 1;    ///< Samples dealt as they came, as many to each replica.
  double planned = 1;  ///< As the plan deals them.
  double bound = 1;    ///< No deal of what it deals, samples or pieces, is more even.

  friend bool operator==(const PhaseBalance&, const PhaseBalance&) = default;
};

/// Rows that a phase hands to the llm on another node, as shares of all its rows.
struct FarRows {
  double planned = 0;
  /// No even deal sends less, were samples divisible: what llm replicas of a node want beyond the
  /// share of work that the node's encoders have.
  double bound = 0;

  friend bool operator==(const FarRows&, const FarRows&) = default;
};

/// `microbatches`: per replica of the plan.
FarRows far_rows(const ParallelPlan& plan, ModuleGroupId group,
                 std::span<const MicrobatchList> microbatches, const PhaseWork& work);

/// `microbatches`: per replica of the plan.
PhaseBalance phase_balance(const ParallelPlan& plan, ModuleGroupId group,
                           std::span<const MicrobatchList> microbatches, const PhaseWork& work);

/// The largest load of a replica among `lists`, one for each of the group's.
double largest_load(std::span<const MicrobatchList> lists, const PhaseWork& work);

/// K_eff (Entrain 4.5.1) of all llm replicas together, where encoders share their batch out: at
/// most `microbatches`, at least 1. A round of microbatches is spread over all replicas of a phase,
/// so what cannot be cut, a sample or a piece of one, must be no more than a replica's even share
/// of a round, whoever trains it. Of several phases the one that takes longest sets the pace, and
/// the longest unit of any is held against that.
///
/// `encoders`: of all groups but the llm's; `in_pieces`: samples that are cut go so. Cost:
/// O(units). REQUIRES: microbatches >= 1.
std::int64_t shared_microbatches(std::span<const PhaseWork> encoders, std::int64_t microbatches,
                                 bool in_pieces = true);

/// What each would have that all shared the work of whole samples out evenly.
double even_load(const PhaseWork& work);

}  // namespace troupe::engine
