// The built-in stage: runs of model layers on one device, with one autograd graph per part.
//
// Owned and called by one executor. Keeps, per part in flight, the rows that came in (as leaves
// that collect their gradient) and the outputs until their backward; nothing else.

#pragma once

#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/execution/packing.hpp"
#include "engine/execution/saved_tensors.hpp"
#include "engine/execution/stage_layers.hpp"
#include "engine/execution/stage_program.hpp"
#include "engine/execution/stage_traffic.hpp"
#include "engine/state/state_store.hpp"
#include "kernels/deferred_gradients.hpp"
#include "models/factory.hpp"
#include "runtime/vocabulary/model_config.hpp"

namespace troupe::engine {

class MaskStore;

class ModelStage final : public StageProgram {
 public:
  /// Builds the layers of stage `id` of `plan` on what `store` holds. `plan` and `modules` (those
  /// the plan's model was built from) outlive the stage; the store need not, its memory is shared.
  /// So does `masks`, from which it takes those of its parts; null: it makes them.
  ///
  /// Errors: as `StageLayers::create`.
  static Result<std::unique_ptr<ModelStage>> create(const ParallelPlan& plan, StageId id,
                                                    const std::vector<ModuleConfig>& modules,
                                                    const models::LayerOptions& options,
                                                    const StateStore& store,
                                                    MaskStore* masks = nullptr);

  bool show_to(Viewer* viewer) override {
    viewer_ = viewer;
    return true;
  }
  Status begin(const IterationPlan& plan, const data::DecodedSamples& samples) override;
  void abandon() override;
  Status forward(PartKey part) override;
  Status backward(PartKey part) override;
  Status backward_input(PartKey part) override;
  Status backward_weight(PartKey part) override;
  Result<Bytes> offload(PartKey part, Device& device) override;
  Result<Bytes> fetch(PartKey part, Device& device) override;
  void accept_rows(MessageId message, at::Tensor rows) override;
  Result<at::Tensor> rows_for(MessageId message) override;
  void accept_gradient(MessageId message, at::Tensor gradient) override;
  Result<at::Tensor> gradient_for(MessageId message) override;
  GroupState& state(GroupId group, LayerId layer) override { return layers_.state(group, layer); }
  std::vector<models::Parameter*> parameters() override { return layers_.parameters(); }
  std::vector<PartLoss> losses() const override;
  std::vector<PartAuxiliary> auxiliary() const override;
  Bytes activations() const override { return activations_; }

 private:
  using Run = StageLayers::Run;

  /// What is kept of one part between its forward and its backward.
  struct Flight {
    std::map<MessageId, at::Tensor> arrived;    ///< Rows that came in; leaves.
    std::map<MessageId, at::Tensor> gradients;  ///< Gradients of rows that went out.
    std::vector<at::Tensor> outputs;            ///< Per run; undefined where it had no rows.
    /// Per run: what its layers add to the loss.
    std::vector<std::shared_ptr<models::AuxiliaryLosses>> auxiliary;
    std::shared_ptr<kernels::DeferredGradients> deferred;
    std::optional<SavedTensors> saved;  ///< Where the part is offloaded: by autograd, of it.
    std::size_t unsent = 0;             ///< Outgoing messages whose rows have not been asked for.
    Bytes activations;
  };

  ModelStage(const ParallelPlan& plan, StageId id, StageLayers layers, MaskStore* masks)
      : plan_(plan), id_(id), layers_(std::move(layers)), masks_(masks) {}

  const std::vector<Run>& runs() const { return layers_.runs(); }
  const std::vector<std::int32_t>& samples_of(PartKey part) const { return layers_.units_of(part); }
  Flight& flight(PartKey part) { return flights_[part]; }
  PartKey source_part(MessageId id) const { return part_of(iteration_->at(id).source); }
  PartKey destination_part(MessageId id) const { return part_of(iteration_->at(id).destination); }
  Result<models::PackedBatch> pack(std::size_t run_index, PartKey part, Flight& flight);
  Status attach_media(PartKey part, Flight& flight, const PackedText& text,
                      models::PackedBatch& batch);
  Status attach_taught(PartKey part, Flight& flight, const PackedText& text,
                       models::PackedBatch& batch);
  Result<models::PackedBatch> pack_teacher(const Run& run, PartKey part) const;
  bool is_teacher(ModuleId module) const;
  Result<at::Tensor> run_layers(std::size_t run_index, PartKey part, Flight& flight);
  void release(PartKey part);
  void hold(Flight& flight, std::int64_t bytes);
  void let_go(Flight& flight);
  std::int64_t segments_of_batch(ModuleId module) const;
  bool makes_losses(const Run& run) const;
  PartLoss loss_of(PartKey part, const at::Tensor& sample_losses) const;
  Status run_backward(PartKey part);
  void show_outputs(const Flight& flight) const;
  void show_gradients(const Flight& flight) const;

  const ParallelPlan& plan_;
  StageId id_;
  StageLayers layers_;
  MaskStore* masks_;
  const IterationPlan* iteration_ = nullptr;
  const data::DecodedSamples* samples_ = nullptr;
  Viewer* viewer_ = nullptr;  ///< None: nobody looks.
  std::map<PartKey, Flight> flights_;
  std::vector<std::pair<PartKey, at::Tensor>>
      losses_;  ///< Of samples; nobody looks into them here.
  /// What layers added to the loss: sums, in which nobody looks here.
  std::vector<std::tuple<PartKey, ModuleId, models::AuxiliaryLoss>> auxiliary_;
  Bytes activations_;
};

}  // namespace troupe::engine
