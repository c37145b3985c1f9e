// How the gradients of a parameter group become one sum at all of its holders: which of them adds
// up which elements, in which order.
//
// Pure functions of the plan, for who plans, executes, simulates, checks and repeats it.

#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe {

/// Elements [begin, end) of a group, which one holder gets from all others that have gradients,
/// adds up in the order of holders, measures, and gives to all others. A reduce-scatter and an
/// all-gather: with n chunks each of n holders sends and receives 2 (n - 1) / n of the bytes.
/// Where a holder has several tensor-parallel ranks, each does so for its share of the elements.
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

/// What one holder does for the sum of a group.
struct SumRole {
  std::int32_t place = -1;          ///< Among the holders; -1: of a device that is none of them.
  std::span<const DeviceId> ranks;  ///< The holder's devices; of the plan, which outlives it.
  std::vector<std::size_t> uses;    ///< Its own, added in this order first; indices into the uses.
  bool sends = false;               ///< Others own chunks and it has gradients: it gives to them.
  bool takes = false;               ///< Others own chunks: it gets their sums.
  std::int64_t adds = 0;  ///< Elements of the chunk that it owns, of all ranks; 0: it owns none.

  std::int32_t tp() const { return static_cast<std::int32_t>(ranks.size()); }
};

/// How a group becomes its sum.
struct GroupSum {
  std::vector<SumChunk> chunks;
  std::vector<SumRole> roles;  ///< Parallel to the holders.
};

/// Cost: linear in uses and holders.
inline GroupSum plan_sum(const ParallelPlan& plan, GroupId id) {
  const ParameterGroup& group = plan.groups[id.index()];
  GroupSum sum{sum_chunks(group, id), {}};
  std::vector<std::int32_t> places(plan.devices.size(), -1);
  for (const DeviceId& device : group.holders) {
    const auto place = static_cast<std::int32_t>(sum.roles.size());
    places[device.index()] = place;
    sum.roles.push_back({place, {&device, 1}, {}, false, sum.chunks.size() > 1, 0});
  }
  for (std::size_t u = 0; u < group.uses.size(); ++u) {
    const Stage& stage = plan.at(group.uses[u].stage);
    for (std::int32_t cp = 0; cp < stage.grid.cp; ++cp) {
      const auto ranks = stage.row(cp);
      SumRole& role = sum.roles[static_cast<std::size_t>(places[ranks.front().index()])];
      role.ranks = ranks;
      role.uses.push_back(u);
    }
  }
  for (const SumChunk& chunk : sum.chunks)
    sum.roles[static_cast<std::size_t>(chunk.owner)].adds = chunk.size();
  for (SumRole& role : sum.roles) {
    role.takes = role.takes || role.adds == 0;
    role.sends = role.takes && role.place < group.users();
  }
  return sum;
}

/// The role of one device in it.
inline SumRole role_of(const GroupSum& sum, DeviceId device) {
  for (const SumRole& role : sum.roles)
    if (std::find(role.ranks.begin(), role.ranks.end(), device) != role.ranks.end()) return role;
  return {};
}

}  // namespace troupe
