// Where stages are tried by themselves: a model cut into one stage per module, a batch of a few
// samples of the job's data, and rows and gradients drawn at random for what other stages would
// hand on.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/contract/stage_round.hpp"
#include "engine/setup/job_setup.hpp"

namespace troupe::engine {

class StageBench {
 public:
  /// Of the job counts its model and its data. `samples`: >= 2, at most so many are taken, the
  /// shortest good ones of the first hundred that have each medium, and text alone.
  /// Errors: as `prepare` and `Dataset::open`; bad_data: fewer than two good samples.
  static Result<std::unique_ptr<StageBench>> create(const job::Job& job, std::int64_t samples);

  const ParallelPlan& plan() const { return plan_; }

  /// A stage on parameters of its own, as the seed has them. Errors: as `make_stage`.
  Result<std::unique_ptr<StageProgram>> make(StageId id) const;

  /// What comes to a stage: the same at every call.
  const StageRows& inputs(StageId id) const { return inputs_[id.index()]; }

  Result<StageOutcome> round(StageProgram& stage, StageId id, const RoundOptions& options,
                             const StageRows& inputs) const {
    return run_round(stage, plan_, planned_.iteration, store_, id, inputs, options);
  }

  /// Layers of the stage that have parameters which train.
  std::vector<LayerId> trained_layers(StageId id) const;
  bool has_module(StageId id, const std::string& module) const;
  std::string layer_name(LayerId layer) const;

 private:
  explicit StageBench(JobSetup setup) : setup_(std::move(setup)) {}
  Status take_samples(std::int64_t count);
  Status plan_batch();
  void draw_inputs();

  JobSetup setup_;
  ParallelPlan plan_;
  std::vector<data::DecodedSample> samples_;
  SampleStore store_;
  PlannedBatch planned_;
  std::vector<StageRows> inputs_;  ///< Per stage.
};

}  // namespace troupe::engine
