// One complete copy of the model that trains a plan's parts without stages, messages or transport,
// and adds up gradients in the order of the plan's stages: a pipeline of `--microbatches plan`.
//
// Not thread-safe. Whatever it computes has the same bits as the pipelined run of the same plan.

#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/holder_state.hpp"
#include "engine/packing.hpp"
#include "engine/reports.hpp"
#include "engine/sample_store.hpp"
#include "engine/stage_program.hpp"
#include "engine/whole_model.hpp"
#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

class PlanReplica {
 public:
  /// `plan` outlives the replica.
  PlanReplica(const ParallelPlan& plan, PipelineId pipeline, WholeModel model);

  WholeModel& model() { return model_; }
  HolderState& state(GroupId group, LayerId layer) { return *states_.at({group, layer}).held; }

  /// Starts an iteration. `backward`: the order in which stages of the plan add up gradients.
  void begin(const std::vector<Action>& backward);

  /// Forward of all encoder parts, then forward and backward of the llm's parts, then backward of
  /// the encoders'. What each part gives to a parameter is added up in the order of its stage.
  ///
  /// Errors:
  /// - internal: a gradient was planned and not made, or made and not planned.
  /// - as `pack_media` and `pack_text`. Throws c10::Error where LibTorch does.
  Status train(const IterationPlan& iteration, const SampleStore& store);

  /// Of the iteration, per llm part.
  const std::vector<PartLoss>& losses() const { return losses_; }

 private:
  /// Rows of one encoder for one part, on both sides of the boundary.
  struct Crossing {
    PartKey part;
    ModuleId encoder;
    at::Tensor output;  ///< With the encoder's graph.
    at::Tensor leaf;    ///< What the llm reads; collects the gradient.
    std::vector<RowSpan> spans;
  };
  /// When a stage adds what a part gives: with its input gradients, or with its weight gradients.
  struct Turn {
    PartKey part;
    bool weight = false;

    friend auto operator<=>(const Turn&, const Turn&) = default;
  };
  /// One group at one holder of this pipeline.
  struct State {
    StageId stage;
    std::unique_ptr<HolderState> held;  ///< Gradients of the part at hand.
    at::Tensor sum;
    std::deque<Turn> turns;              ///< Still to come, in the order of the stage.
    std::map<Turn, at::Tensor> waiting;  ///< Made before their turn.
  };

  static Turn turn(const Action& action) {
    return {{action.microbatch, action.part}, action.kind == ActionKind::backward_weight};
  }
  void add_state(GroupId group, const Holder& holder);
  void take(Side side, Turn made);
  void run_backward(Side side, PartKey part, const std::vector<at::Tensor>& roots,
                    const std::vector<at::Tensor>& gradients);
  Status encode(const IterationPlan& iteration, PartKey key, const SampleStore& store);
  void encode_backward(PartKey part);
  std::pair<Crossing*, RowSpan> find_rows(ModuleId encoder, std::int32_t sample);
  Status train_llm(const IterationPlan& iteration, PartKey key, const SampleStore& store);
  void record(const IterationPlan& iteration, PartKey key, const std::vector<std::int32_t>& part,
              const at::Tensor& losses);

  const ParallelPlan& plan_;
  PipelineId pipeline_;
  WholeModel model_;
  std::map<std::pair<GroupId, LayerId>, State> states_;
  bool splits_weight_ = false;
  std::vector<Crossing> crossings_;
  std::vector<PartLoss> losses_;
};

}  // namespace troupe::engine
