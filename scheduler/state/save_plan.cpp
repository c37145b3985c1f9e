#include "scheduler/state/save_plan.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "scheduler/cost/state_bytes.hpp"
#include "scheduler/state/state_moves.hpp"

namespace troupe::scheduler {

std::map<DeviceSlot, std::vector<ShardKey>> plan_save(const StatePlacement& placement,
                                                      Dtype dtype) {
  std::vector<std::pair<std::int64_t, const Shard*>> shards;
  for (const Shard& shard : placement)
    shards.emplace_back(elements_of(shard.key.box) * bytes_per_element(shard.key.kind, dtype),
                        &shard);
  std::stable_sort(shards.begin(), shards.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::map<DeviceSlot, std::int64_t> loads;
  std::map<DeviceSlot, std::vector<ShardKey>> writers;
  for (const auto& [bytes, shard] : shards) {
    if (shard->holders.empty()) continue;
    const auto writer =
        *std::min_element(shard->holders.begin(), shard->holders.end(),
                          [&](const auto& a, const auto& b) { return loads[a] < loads[b]; });
    loads[writer] += bytes;
    writers[writer].push_back(shard->key);
  }
  for (auto& [device, keys] : writers) std::sort(keys.begin(), keys.end());
  return writers;
}

}  // namespace troupe::scheduler
