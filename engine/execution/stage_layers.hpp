// The layers of a stage and what goes through them, for who writes a stage without the engine's own
// (`StageProgram`): made as the job's families make them, on the state that the stage's device
// keeps, moves and saves. Which of them run, when, and what is kept meanwhile is the stage's.
//
// Owned and called by one stage.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/execution/group_state.hpp"
#include "engine/execution/packing.hpp"
#include "engine/execution/stage_traffic.hpp"
#include "models/layer.hpp"
#include "runtime/data/samples/decoded_samples.hpp"
#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::engine {

class ParameterShard;
struct StageRequest;

/// What of a model a stage has, and of an iteration. Runs are counted as in `runs`.
class StageLayers {
 public:
  /// Layers of one module that follow each other.
  struct Run {
    LayerRun range;
    bool ends_module = false;  ///< Its rows are what the module hands on.
    /// A stage may call them, or compute from their `parameters()` what they would.
    std::vector<std::unique_ptr<models::Layer>> layers;
  };

  /// Builds the layers of a stage on what the store has: their values are its memory.
  /// Errors: as `models::make_layer`; internal: a group's size differs from the layers' parameters,
  /// or the store lacks one of them.
  static Result<StageLayers> create(const StageRequest& request);
  StageLayers(StageLayers&& other) noexcept;  ///< As if by members; `other` is empty then.
  StageLayers& operator=(StageLayers&& other) noexcept;  ///< The same.
  ~StageLayers();  ///< Not here, where nobody knows the class of the state.

  const std::vector<Run>& runs() const { return runs_; }  ///< In the order in which they compute.

  /// Begins an iteration: gradients are zero. What follows REQUIRES it, and that `iteration` is
  /// still valid.
  void begin(const IterationPlan& iteration);

  const StageTraffic& traffic() const { return traffic_; }        ///< Of the iteration.
  const SampleUnits& units() const { return *units_; }            ///< The same.
  const std::vector<std::int32_t>& units_of(PartKey part) const;  ///< In packing order.
  const std::vector<MessageId>& incoming(PartKey part) const;     ///< Messages that end at a part.
  const std::vector<MessageId>& outgoing(PartKey part) const;     ///< And that begin there.

  /// What layers of an encoder or its projector read of a part besides rows. Layers that add to the
  /// loss throw where its `losses` stay null: the stage sets them, trains what is left there, and
  /// tells it by `auxiliary`. REQUIRES: the run is of such a module. Errors: as `pack_encoder`.
  Result<models::PackedBatch> encoder_batch(std::size_t run, PartKey part,
                                            const data::DecodedSamples& samples) const;
  /// The rows that a run begins from: the output of one before it (`outputs`: theirs, in order), or
  /// what `arrived` by one of the part's messages. Undefined where there are none, and where it
  /// begins from samples: an encoder's first layer, and the llm's, to which rows are media.
  /// Errors: internal: they have not arrived.
  Result<at::Tensor> input_rows(std::size_t run, PartKey part,
                                const std::vector<at::Tensor>& outputs,
                                const std::map<MessageId, at::Tensor>& arrived) const;
  /// Whether a run has made the rows that the samples of a part have; the one that ends the llm, a
  /// loss of each of them: [samples].
  /// Errors: internal: it has made others. Names the layers, the samples and both counts.
  Status check_output(std::size_t run, PartKey part, const at::Tensor& output) const;
  /// The rows of a message that begins here, contiguous, out of the outputs of all runs for its
  /// part. Errors: internal: they were not computed; as `check_output`.
  Result<at::Tensor> rows_of(MessageId message, const std::vector<at::Tensor>& outputs) const;
  /// The gradient of a run's output for a part, put together from those of the messages that took
  /// rows of it, of which `gradients` has all; undefined: none of them did.
  at::Tensor output_gradient(std::size_t run, PartKey part, const at::Tensor& output,
                             const std::map<MessageId, at::Tensor>& gradients) const;
  /// Takes what a stage keeps of a message out of it. Errors: internal: nothing is there, as behind
  /// `abandon`.
  static Result<at::Tensor> take(std::map<MessageId, at::Tensor>& kept, MessageId message);
  /// The gradient that a backward has left at rows that arrived, contiguous; lets go of these.
  /// Errors: internal: they are not there, or have none.
  static Result<at::Tensor> take_gradient(std::map<MessageId, at::Tensor>& arrived,
                                          MessageId message);
  /// Takes what a backward has left in the parameters; to be called behind each of them.
  void harvest();

  std::vector<models::Parameter*> parameters();     ///< As `StageProgram` asks for them.
  GroupState& state(GroupId group, LayerId layer);  ///< The same.

 private:
  StageLayers(const ParallelPlan& plan, StageId id);
  std::optional<std::size_t> before(std::size_t run) const;
  bool enters(const Message& message, const Run& run) const;
  std::size_t maker_of(const Message& message) const;
  std::vector<RowSpan> output_spans(std::size_t run, PartKey part) const;

  const ParallelPlan* plan_;  ///< Outlives this.
  StageId id_;
  std::vector<Run> runs_;
  std::map<std::pair<GroupId, LayerId>, std::unique_ptr<ParameterShard>> states_;
  const IterationPlan* iteration_ = nullptr;
  std::optional<SampleUnits> units_;
  StageTraffic traffic_;
};

}  // namespace troupe::engine
