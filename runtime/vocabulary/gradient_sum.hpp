// How the gradients of a parameter group become one sum at all of its holders: which of them adds
// up which elements, in which order, and what moves between them in which action.
//
// Pure functions of the plan, for who plans, executes, simulates, checks and repeats it.

#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe {

/// Elements [begin, end) of a group, which one holder, their owner, gets from all others that have
/// gradients, adds up, measures, and gives to all others. A reduce-scatter and an all-gather: with
/// n chunks each of n holders sends and receives 2 (n - 1) / n of the bytes. Where a holder has
/// several tensor-parallel ranks, each does so for its share of the elements.
struct SumChunk {
  /// Index into `ParameterGroup::holders`; at most one chunk each, and none of a standby holder,
  /// which has nothing to add. So standby holders change neither chunks nor norms.
  std::int32_t owner = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
};

/// Below this a chunk costs more messages than it saves bytes.
inline constexpr std::int64_t kChunkElementsMin = 4096;
/// Messages grow with holders times chunks.
inline constexpr std::int64_t kSumChunksMax = 64;

/// The chunks of a group, ascending. Of groups that are not worth a chunk for each holder different
/// holders own the chunks, so that small groups keep all of them busy.
inline std::vector<SumChunk> sum_chunks(const ParameterGroup& group, GroupId id) {
  const std::int64_t users = group.users();
  const std::int64_t count = std::clamp<std::int64_t>(group.elements / kChunkElementsMin, 1,
                                                      std::min(users, kSumChunksMax));
  std::vector<SumChunk> chunks;
  for (std::int64_t c = 0; c < count; ++c)
    chunks.push_back({static_cast<std::int32_t>((id.value + c) % users), c * group.elements / count,
                      (c + 1) * group.elements / count});
  return chunks;
}

/// Holders whose gradients are added up before those of others: in a tree those of one node, in a
/// chain each holder alone. What several of them have of a chunk leaves the branch as one sum, and
/// its sum comes to the branch once: at one holder of it, the chunk's adder there.
struct SumBranch {
  std::vector<std::int32_t> holders;  ///< Places among the group's holders; those on standby last.
  std::int32_t users = 0;             ///< So many of the first have gradients.
  /// Per chunk: who adds it up here and hands its sum on; the owner, where it is one of them. A
  /// standby holder in a branch without gradients. Empty: the only holder does.
  std::vector<std::int32_t> adders = {};
};

/// What one end of a transfer knows of the other.
struct SumTransfer {
  std::size_t chunk = 0;
  std::int32_t holder = 0;               ///< The other end.
  ActionKind kind = ActionKind::reduce;  ///< In which it sends, or takes, the chunk.

  friend auto operator<=>(const SumTransfer&, const SumTransfer&) = default;
};

/// The actions of a sum in the order in which they stand in a list, and of their values. Each takes
/// what earlier ones send, on any device: so no two of them wait for each other.
///
/// Where all holders call NCCL together (`is_by_nccl`) a sum has two of them at each holder, on
/// standby or not: `reduce_send` enters the call, `reduce_receive` waits until it has ended. Calls
/// that have two devices in common must be entered in the same order at both.
inline constexpr std::array kSumActions{ActionKind::reduce_send, ActionKind::reduce_partial,
                                        ActionKind::reduce, ActionKind::reduce_relay,
                                        ActionKind::reduce_receive};

/// What one holder does for the sum of a group.
struct SumRole {
  std::int32_t place = -1;          ///< Among the holders; -1: of a device that is none of them.
  std::span<const DeviceId> ranks;  ///< The holder's devices; of the plan, which outlives it.
  std::vector<std::size_t> uses;    ///< Its own, added in this order first; indices into the uses.
  bool sends = false;     ///< It gives gradients of its own to who adds them up, or enters a call.
  bool takes = false;     ///< It gets sums that it does not hand on, or all of a call's.
  std::int64_t adds = 0;  ///< Elements of the chunk that it owns, of all ranks; 0: it owns none.
  std::int64_t partials = 0;    ///< Elements that it adds up over its branch, for other owners.
  std::int64_t relays = 0;      ///< Elements whose sums it hands on in its branch.
  std::int32_t own_chunk = -1;  ///< Which chunk it owns; -1: none.

  std::int32_t tp() const { return static_cast<std::int32_t>(ranks.size()); }
  /// Whether it has this action of a sum.
  bool acts(ActionKind kind) const;
};

/// How a group becomes its sum: branch after branch, in each holder after holder, each holder's own
/// uses first.
struct GroupSum {
  std::vector<SumChunk> chunks;
  std::vector<SumRole> roles;          ///< Parallel to the holders.
  std::vector<SumBranch> branches;     ///< In the order of their first holders.
  std::vector<std::size_t> branch_of;  ///< Parallel to the holders.
  std::int32_t users = 0;              ///< Holders that have gradients.
  bool is_call = false;                ///< Of all holders to NCCL; chunks are for norms alone.

  /// Who adds a chunk up for a branch, and gets its sum there.
  std::int32_t adder(std::size_t branch, std::size_t chunk) const;
  /// What a holder sends in one of its actions, by chunk. Nothing of itself to itself. In a call:
  /// one for each other holder, whatever the chunk.
  std::vector<SumTransfer> sent(std::int32_t place, ActionKind kind) const;
  /// What it takes from others in one of its actions: by chunk, then in the order of the sum. In a
  /// call as above.
  std::vector<SumTransfer> taken(std::int32_t place, ActionKind kind) const;
};

/// In the group's order. Cost: linear in uses and holders; in a tree in nodes times chunks.
GroupSum plan_sum(const ParallelPlan& plan, GroupId id);

/// The role of one device in it.
SumRole role_of(const GroupSum& sum, DeviceId device);

/// The order that a group of this plan should have: a call to NCCL where the job wants it
/// (`ModelGraph::sums`), the group has several holders and each is one device; else the tree where
/// fewer elements go through the busiest node, either way, than in a chain; else the chain. Standby
/// holders do not count, so that a job has the same bits with and without them;
/// `ParameterGroup::order` is not looked at. A tree never moves more between two nodes than a
/// chain: a node that sends a sum of its own sends it once instead of each holder's part, and gets
/// a sum once instead of each holder. Cost: linear in holders.
SumOrder sum_order(const ParallelPlan& plan, const ParameterGroup& group, GroupId id);

}  // namespace troupe
