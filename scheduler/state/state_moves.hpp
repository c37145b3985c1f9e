// Where a layout wants the state of the model, and how it gets there from where it is.
//
// Pure; thread-safe; the same answer on every node. Start of a job, a changed layout, recovery and
// resume are the same question with another "where it is".

#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "runtime/vocabulary/model_config.hpp"
#include "runtime/vocabulary/model_state.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::scheduler {

/// What a layout needs: of every parameter its value on each device whose stages use it, of that
/// the share of its tensor-parallel rank (`rank_box`), and all of it on each device that is on
/// standby for it; where it trains its master (narrow types only) and moments there too.
StatePlacement place_state(const ParallelPlan& plan, const std::vector<ParameterInfo>& parameters,
                           Dtype dtype);

struct StateMoves {
  std::vector<StateMove> moves;  ///< Ascending.
  std::int64_t sent_bytes = 0;   ///< Between nodes, in all.
  /// Between nodes: what the busiest device sends, and what no plan can do better than.
  std::int64_t max_sent_bytes = 0;
  std::int64_t lower_bound_bytes = 0;
};

/// What comes to each device: of the moves' bytes those that take new room.
std::map<DeviceSlot, Bytes> arriving_bytes(const StateMoves& moves, Dtype dtype);

/// The moves after which every holder of `want` has what it holds. A shard that its device has
/// already stays. A piece that is missing comes from the nearest source: the device's own shards of
/// other boxes, another device of its node, or a device of another node; which of several devices
/// sends, the copy plan says (`plan_copies`), so that all are busy with about as many bytes. Where
/// `have` is empty everything comes from the seed.
///
/// Errors:
/// - infeasible: a piece that is wanted and that nobody has; names the parameters.
Result<StateMoves> plan_state_moves(const std::vector<ParameterInfo>& parameters, Dtype dtype,
                                    const StatePlacement& have, const StatePlacement& want);

/// What moves come to, without saying who sends what.
struct MoveTotals {
  std::map<DeviceSlot, Bytes> arriving;  ///< As `arriving_bytes` has it.
  /// Between nodes: what the busiest device receives, or all that can send on the mean, whichever
  /// is more. No plan can do better. 0 where everything comes from the seed.
  Bytes least_busiest;
};

/// A fraction of what planning the moves costs, for layouts that are only weighed.
/// Errors: as `plan_state_moves`.
Result<MoveTotals> total_moves(const std::vector<ParameterInfo>& parameters, Dtype dtype,
                               const StatePlacement& have, const StatePlacement& want);

}  // namespace troupe::scheduler
