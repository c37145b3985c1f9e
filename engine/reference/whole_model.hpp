// All layers of a model in one process, and the batches a reference run reads. For the reference
// runs only; the engine holds stages.
//
// Owned and used by one thread.

#pragma once

#include <memory>
#include <vector>

#include "engine/iteration/prepared_votes.hpp"
#include "engine/reference/reference.hpp"
#include "engine/reference/reference_state.hpp"
#include "engine/run/run_folder.hpp"
#include "engine/setup/job_setup.hpp"
#include "models/layer.hpp"

namespace troupe::engine {

class WholeModel {
 public:
  /// Errors: as `models::make_layer`.
  static Result<WholeModel> create(const JobSetup& setup);

  std::vector<std::unique_ptr<models::Layer>>& layers(ModuleId module) {
    return layers_[module.index()];
  }
  models::Layer& layer(LayerId id) {
    return *layers_[id.module.index()][static_cast<std::size_t>(id.layer)];
  }

  /// Every parameter of every layer: tied ones as often as they are used.
  std::vector<models::Parameter> all_parameters();
  /// Parameters by name, each logical one once.
  std::map<std::string, at::Tensor> parameters();

 private:
  std::vector<std::vector<std::unique_ptr<models::Layer>>> layers_;
};

/// Reads the checkpoint that a run goes on from, where it does. Errors: as `Checkpoint::open` and
/// `read`.
Status load_resumed(const ReferenceOptions& options, const ReferenceState& state);

/// A batch of the epoch's order, decoded here and now.
struct ReferenceBatch {
  data::BatchSpan span;
  std::vector<data::DecodedSample> samples;  ///< Good ones, in order; positions set.
  std::vector<DroppedSample> dropped;
};

class BatchSource {
 public:
  /// `order`: of the job; one without epochs: each takes the whole data set.
  /// Errors: as `Dataset::open`.
  static Result<BatchSource> open(const JobSetup& setup, const DataOrder& order);

  const data::Epochs& epochs() const { return epochs_; }
  ReferenceBatch read(std::int64_t batch);
  /// What training's plans know of a batch before it is decoded, per position.
  std::vector<data::MeasureOutcome> measure(std::int64_t batch);

 private:
  BatchSource(const JobSetup& setup, data::Dataset dataset, data::Epochs epochs)
      : setup_(setup), dataset_(std::move(dataset)), epochs_(std::move(epochs)) {}

  const JobSetup& setup_;
  data::Dataset dataset_;
  data::Epochs epochs_;
  /// Turns to the order of a batch's epoch.
  data::BatchSpan turn_to(std::int64_t batch);

  std::int64_t epoch_ = -1;
  std::vector<std::int64_t> order_;
};

/// The loop around the steps that both reference runs share: reads batches, writes the run folder,
/// counts bad samples and steps without finite loss, stops in time.
class ReferenceLoop {
 public:
  /// What one step of a kind of reference run computes.
  struct StepResult {
    StepOutcome outcome;
    std::vector<std::string> ids;  ///< In training order.
    TokenCount tokens = 0;
    TokenCount trained_tokens = 0;
    std::vector<PipelineShare> dealt = {};  ///< Where batches are dealt to pipelines.
  };
  using Step = std::function<Result<StepResult>(std::int64_t step, const ReferenceBatch& batch,
                                                const StepPolicy& policy)>;

  ReferenceLoop(const JobSetup& setup, BatchSource& source, RunFolder& folder,
                const ReferenceOptions& options)
      : setup_(setup), source_(source), folder_(folder), options_(options) {}

  /// Goes on after `ReferenceOptions::resume`; saves the state that `state` gives handles to, as
  /// the job file says and when the run is stopped.
  Status run(const Step& step, const std::function<ReferenceState()>& state);

 private:
  std::vector<SampleShape> shapes_of(const ReferenceBatch& batch) const;
  Status save(const JobProgress& progress, const std::function<ReferenceState()>& state);

  const JobSetup& setup_;
  BatchSource& source_;
  RunFolder& folder_;
  const ReferenceOptions& options_;
};

}  // namespace troupe::engine
