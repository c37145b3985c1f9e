// How the gradients of a parameter group become one sum at all of its holders: which of them adds
// up which elements, in which order.
//
// Pure functions of the plan, for who plans, executes, simulates, checks and repeats it.

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/vocabulary/parallel_plan.hpp"

namespace troupe {

/// Elements [begin, end) of a group, which one holder gets from all others, adds up in the order of
/// holders, measures, and gives back to all others. A reduce-scatter and an all-gather: with n
/// chunks each of n holders sends and receives 2 (n - 1) / n of the bytes.
struct SumChunk {
  std::int32_t owner = 0;  ///< Index into `ParameterGroup::holders`; at most one chunk each.
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
  const auto holders = static_cast<std::int64_t>(group.holders.size());
  const std::int64_t count = std::clamp<std::int64_t>(group.elements / kChunkElementsMin, 1,
                                                      std::min(holders, kSumChunksMax));
  std::vector<SumChunk> chunks;
  for (std::int64_t c = 0; c < count; ++c)
    chunks.push_back({static_cast<std::int32_t>((id.value + c) % holders),
                      c * group.elements / count, (c + 1) * group.elements / count});
  return chunks;
}

/// What one device does for the sum of a group.
struct SumRole {
  std::int32_t place = -1;  ///< Among the holders; -1: it is none of them.
  bool sends = false;       ///< Others own chunks: it gives to them and gets their sums back.
  std::int64_t adds = 0;    ///< Elements of the chunk that it owns; 0: it owns none.
};

inline SumRole sum_role(const ParameterGroup& group, const std::vector<SumChunk>& chunks,
                        DeviceId device) {
  const auto found = std::find(group.holders.begin(), group.holders.end(), device);
  if (found == group.holders.end()) return {};
  SumRole role{static_cast<std::int32_t>(found - group.holders.begin())};
  for (const SumChunk& chunk : chunks) {
    if (chunk.owner == role.place)
      role.adds = chunk.size();
    else
      role.sends = true;
  }
  return role;
}

/// The uses of a group on a device, whose gradients are added in this order before any other's;
/// indices into `ParameterGroup::uses`.
inline std::vector<std::size_t> uses_on(const ParallelPlan& plan, const ParameterGroup& group,
                                        DeviceId device) {
  std::vector<std::size_t> uses;
  for (std::size_t u = 0; u < group.uses.size(); ++u)
    if (plan.at(group.uses[u].stage).devices.front() == device) uses.push_back(u);
  return uses;
}

}  // namespace troupe
