#include "actors/coordination/left_state.hpp"

#include <algorithm>

namespace troupe::actors {

namespace {

bool is_orphan(const Shard& shard) { return shard.holders.empty(); }

}  // namespace

bool is_whole(const StatePlacement& placement) {
  return std::ranges::none_of(placement, is_orphan);
}

void add_orphans(const StatePlacement& before, const StatePlacement& left, Orphans& orphans) {
  for (std::size_t i = 0; i < left.size(); ++i)
    if (is_orphan(left[i]))
      for (const DeviceSlot& holder : before[i].holders) orphans[left[i].key].insert(holder.node);
}

WorthSaving worth_saving(const StatePlacement& left, bool has_news, bool goes_back) {
  if (is_whole(left)) return WorthSaving::whole;
  if (std::ranges::all_of(left, is_orphan) || !has_news || goes_back) return WorthSaving::nothing;
  return WorthSaving::part;
}

}  // namespace troupe::actors
