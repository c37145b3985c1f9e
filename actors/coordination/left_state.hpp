// What is left of a job's state once nodes are gone: which shards nobody holds any more, who held
// them last, and what is worth a save.
//
// Pure; thread-safe.

#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "runtime/vocabulary/model_state.hpp"

namespace troupe::actors {

/// Whether somebody holds each shard.
bool is_whole(const StatePlacement& placement);

/// Shards that nobody holds any more, and the nodes that were the last to; none: not known.
using Orphans = std::map<ShardKey, std::set<NodeId>>;

/// Adds the shards that have holders in `before` and none in `left`. REQUIRES: both list the same
/// shards.
void add_orphans(const StatePlacement& before, const StatePlacement& left, Orphans& orphans);

/// What becomes of state that is left.
enum class WorthSaving : std::uint8_t {
  nothing,  ///< It goes with the job.
  whole,    ///< A checkpoint.
  part,     ///< An incomplete save: what lives, and a list of what does not.
};

/// A whole model always is. A part is where somebody holds any of it, it has news (steps changed
/// parameters since the newest checkpoint), and the job does not go back to that checkpoint by
/// itself, which makes the part worth nothing.
WorthSaving worth_saving(const StatePlacement& left, bool has_news, bool goes_back);

}  // namespace troupe::actors
