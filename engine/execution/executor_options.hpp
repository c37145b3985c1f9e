// What an executor is told of its device and of who watches it.

#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/execution/memory_promise.hpp"
#include "engine/execution/row_calls.hpp"
#include "engine/execution/sum_calls.hpp"
#include "engine/execution/work_in_hand.hpp"
#include "runtime/observers/audience.hpp"
#include "runtime/state/adamw.hpp"
#include "runtime/vocabulary/media_input.hpp"
#include "runtime/vocabulary/model_graph.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::job {
struct Debug;
}

namespace troupe::engine {

/// A test hook: computing a part with this many rows of a module takes `factor` times as long. With
/// `per_sample`: a sample's share of the rows does, where the sample has this many. In these steps.
struct SlowRows {
  ModuleId module;
  TokenCount min_rows = 0;
  TokenCount max_rows = 0;  ///< Included.
  double factor = 1;        ///< >= 1.
  bool per_sample = false;
  std::int64_t from_step = 1;
  std::int64_t to_step = 0;  ///< Included; 0: to the end.
};

/// Those that a job asks for on this node (`debug.slow_shapes`).
std::vector<SlowRows> slow_rows(const job::Debug& debug, const ModelGraph& model, NodeId node);

struct ExecutorOptions {
  DeviceId device;
  EpochNumber epoch_number = 0;
  std::int64_t last_step = 0;  ///< That the device ran in a layout before; 0: none.
  /// Per module: its peak learning rate divided by the optimizer's.
  std::vector<double> learning_rate_scales;
  state::AdamWOptions adamw;
  bool hash_parameters = false;
  /// The model's, in which rows cross between stages; gradients are fp64 where it is, else fp32.
  at::ScalarType row_dtype = at::kFloat;
  std::vector<SlowRows> slow_rows;
  /// Of the vision encoders, in the order of the model: by what pixels of other nodes are
  /// normalised. Of those beyond it by CLIP's.
  std::vector<PixelScale> picture_scales = {};
  /// Asked before each action: true makes `advance` return, so that its owner can attend to
  /// something else. Empty: never.
  std::function<bool()> yields;
  /// Whether parameters may change, or leave, now; where not, `wake` follows. Empty: always.
  std::function<bool()> may_update;
  /// Who sees what stages compute; none: nobody. Outlives the executor.
  observers::Audience* audience = nullptr;
  MemoryPromise memory;  ///< Of the device; none is kept where nobody said what it may use.
  WorkInHand* in_hand = nullptr;  ///< Hears what it is in; none: nobody. Outlives the executor.
  /// Runs sums that holders call for together (`is_by_nccl`). Outlives the executor.
  SumCalls* calls = nullptr;
  /// Moves rows between devices that call NCCL for them; none: all go by messages. As above.
  RowCalls* rows = nullptr;
};

}  // namespace troupe::engine
