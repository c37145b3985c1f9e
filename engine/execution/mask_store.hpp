// What the llm's layers read of parts besides rows where attention is by modality: masks and work
// lists, made by a thread of their own while the step before runs, so that a forward finds them.
// Who needs one that is not there makes it; the bits are the same.
//
// One per node, for all its devices. Thread-safe. Holds no more than the parts of two iterations.

#pragma once

#include <compare>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "engine/execution/stage_program.hpp"
#include "kernels/mask_tiles.hpp"
#include "models/layer.hpp"
#include "runtime/job/job.hpp"
#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

/// Which lists the devices of a job read: those of the GPU kernels that its llm's heads run on, or
/// none. REQUIRES: the job's modules passed `models::describe_module`.
kernels::GpuLists gpu_lists_of(const job::Job& job);

class MaskStore {
 public:
  /// What became of parts so far.
  struct Tally {
    std::int64_t ahead = 0;    ///< Made by the store's thread.
    std::int64_t at_once = 0;  ///< Made by who took them: they came before the thread did.
    std::int64_t held = 0;     ///< Not yet taken by all who will, made or not.
  };

  /// Makes what a part reads; from any thread. May throw.
  using Maker = std::function<Result<models::PackedBatch>(std::span<const SampleShape> samples,
                                                          std::span<const std::int32_t> part,
                                                          kernels::GpuLists lists)>;

  MaskStore();                      ///< Makes what `pack_text_shapes` does.
  explicit MaskStore(Maker maker);  ///< For tests: in another way.
  ~MaskStore();                     ///< Waits for the part that is being made.
  MaskStore(const MaskStore&) = delete;
  MaskStore& operator=(const MaskStore&) = delete;

  /// An iteration that runs next, or behind the one that runs: what devices of `node` take of it is
  /// made, in the order of their lists. Of the iteration before it what nobody has taken is kept,
  /// of older ones nothing. Under `AttentionRule::causal` there is nothing to make.
  void expect(std::shared_ptr<const IterationPlan> iteration, const ParallelPlan& plan, NodeId node,
              kernels::GpuLists lists);

  /// What `pack_text_shapes` makes of a part of the llm. One that is being made is waited for; one
  /// that nobody has begun, or expected, is made here. REQUIRES: the stage's replica has the part.
  /// Errors: as `pack_text_shapes`. Throws what was thrown where it was made.
  Result<models::PackedBatch> take(const IterationPlan& iteration, const ParallelPlan& plan,
                                   StageId stage, PartKey part);

  /// What was expected does not come: its plans were dropped.
  void drop();

  Tally tally() const;

 private:
  struct Part;
  struct Key {
    const IterationPlan* iteration = nullptr;  ///< Of `iterations_`, so that no other is there.
    ReplicaId replica;
    PartKey part;

    friend auto operator<=>(const Key&, const Key&) = default;
  };

  void forget(const IterationPlan* iteration);
  void serve();

  const Maker maker_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;                              ///< Of what follows.
  std::deque<std::shared_ptr<const IterationPlan>> iterations_;  ///< At most two, in order.
  std::map<Key, std::shared_ptr<Part>> parts_;
  std::deque<std::shared_ptr<Part>> queue_;  ///< For the thread, which passes over what is begun.
  Tally tally_;
  bool stops_ = false;
  std::thread thread_;  ///< Begins with the first part. Last: it uses all of the above.
};

}  // namespace troupe::engine
