// One complete copy of the model that trains the parts of one pipeline of a plan without stages,
// messages or transport, and adds up gradients in the order of the plan's stages, for
// `--microbatches plan`.
//
// Not thread-safe. Whatever it computes has the same bits as the pipelined run of the same plan.

#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/execution/packing.hpp"
#include "engine/execution/parameter_shard.hpp"
#include "engine/execution/sample_store.hpp"
#include "engine/execution/stage_program.hpp"
#include "engine/iteration/reports.hpp"
#include "engine/reference/whole_model.hpp"
#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

class PlanReplica {
 public:
  /// `plan` outlives this. REQUIRES: `models_needed` models.
  PlanReplica(const ParallelPlan& plan, PipelineId pipeline, std::vector<WholeModel> models);

  /// Replicas of the group that has most in the pipeline: each works on a copy of its own.
  static std::size_t models_needed(const ParallelPlan& plan, PipelineId pipeline);

  WholeModel& model() { return models_.front(); }
  std::vector<WholeModel>& models() { return models_; }
  ParameterShard& state(GroupId group, const ParameterUse& holder) {
    return *states_.at({group, holder}).held;
  }

  /// Rows of one encoder for one part, on both sides of the boundary.
  struct Crossing {
    ReplicaId replica;
    PartKey part;
    ModuleId encoder;
    at::Tensor output;  ///< With the encoder's graph.
    at::Tensor leaf;    ///< What the llm reads; collects the gradient.
    std::vector<RowSpan> spans;
    /// What layers of these modules add to the loss.
    std::map<ModuleId, std::shared_ptr<models::AuxiliaryLosses>> auxiliary = {};
  };
  /// Of one iteration, in all pipelines: an encoder may work for the llm of another one.
  using Crossings = std::vector<Crossing>;

  /// Starts an iteration. `backward`: the order in which stages of the plan add up gradients.
  void begin(const std::vector<Action>& backward);

  /// The three phases of an iteration, each for all pipelines before the next one. What each part
  /// gives to a parameter is added up in the order of its stage.
  ///
  /// Errors:
  /// - internal: no rows for a sample; in the end a gradient was planned and not made, or made and
  ///   not planned.
  /// - as `pack_media` and `pack_text`, and as `check_losses` and `layer_fault`, of which samples
  ///   and step.
  Status encode(const IterationPlan& iteration, const SampleStore& store, Crossings& crossings);
  Status train_llm(const IterationPlan& iteration, const SampleStore& store, Crossings& crossings);
  Status finish(const IterationPlan& iteration, const Crossings& crossings);

  /// Of the iteration, per llm part.
  const std::vector<PartLoss>& losses() const { return losses_; }
  const std::vector<PartAuxiliary>& auxiliary() const { return auxiliary_; }

 private:
  /// When a stage adds what a part gives: with its input gradients, or with its weight gradients.
  struct Turn {
    PartKey part;
    bool weight = false;

    friend auto operator<=>(const Turn&, const Turn&) = default;
  };
  /// One group at one holder of this pipeline.
  struct State {
    StageId stage;
    std::unique_ptr<ParameterShard> held;  ///< Gradients of the part at hand.
    at::Tensor sum;
    std::deque<Turn> turns;              ///< Still to come, in the order of the stage.
    std::map<Turn, at::Tensor> waiting;  ///< Made before their turn.
  };

  static Turn turn(const Action& action) {
    return {{action.microbatch, action.part}, action.kind == ActionKind::backward_weight};
  }
  WholeModel& model_of(ReplicaId replica) { return models_[ordinals_.at(replica)]; }
  void add_state(GroupId group, const ParameterUse& holder);
  /// Calls `work` with every part of the replicas of encoders, or of the llm, in order.
  template <class Work>
  Status for_each_part(const IterationPlan& iteration, bool llm, Work work);
  /// All layers of a module on the part at hand.
  at::Tensor run(ReplicaId replica, ModuleId module, at::Tensor rows,
                 const models::PackedBatch& batch);
  void take(ReplicaId replica, Turn made);
  void run_backward(ReplicaId replica, PartKey part, const std::vector<at::Tensor>& roots,
                    const std::vector<at::Tensor>& gradients);
  Status encode_part(const IterationPlan& iteration, ReplicaId replica, PartKey key,
                     const SampleStore& store, Crossings& crossings);
  Status teach_part(const IterationPlan& iteration, ReplicaId replica, PartKey key,
                    ModuleId teacher, const SampleStore& store, Crossings& crossings);
  Status attach_taught(const Crossings& crossings, std::span<const std::int32_t> part,
                       const PackedText& text, models::PackedBatch& batch) const;
  void encode_backward(const IterationPlan& iteration, ReplicaId replica, PartKey part,
                       const Crossings& crossings);
  void record_auxiliary(const IterationPlan& iteration, ModuleId module, PartKey part,
                        const models::AuxiliaryLosses& losses);
  Status train_part(const IterationPlan& iteration, ReplicaId replica, PartKey key,
                    const SampleStore& store, Crossings& crossings);
  void record(const IterationPlan& iteration, ReplicaId replica, PartKey key,
              const std::vector<std::int32_t>& part, const at::Tensor& losses);

  const ParallelPlan& plan_;
  PipelineId pipeline_;
  std::vector<WholeModel> models_;
  std::map<ReplicaId, std::size_t> ordinals_;  ///< Which of the models each replica works on.
  std::map<std::pair<GroupId, ParameterUse>, State> states_;
  bool splits_weight_ = false;
  std::string work_;  ///< The part at hand, in words.
  std::vector<PartLoss> losses_;
  std::vector<PartAuxiliary> auxiliary_;
};

}  // namespace troupe::engine
