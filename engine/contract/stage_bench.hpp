// Where stages are tried by themselves: a model cut into one stage per module, or per layer, a
// batch of a few samples, and rows and gradients drawn at random for what other stages would hand
// on.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/contract/cuts.hpp"
#include "engine/contract/stage_round.hpp"
#include "engine/setup/job_setup.hpp"
#include "engine/state/state_store.hpp"
#include "runtime/vocabulary/hand_layout.hpp"

namespace troupe::engine {

struct BenchOptions {
  std::int64_t samples = 4;   ///< >= 2; of the job's data at most so many.
  bool has_own_data = false;  ///< Samples of the job's data, not made ones.
  bool is_by_layer = false;   ///< A stage for every layer, not for every module.
};

/// The layer of a stage, where every layer has one. Layers are alike where their work is equal, and
/// their parameters but for numbers in names, which count layers.
struct LoneLayer {
  std::string name, kind;  ///< Kinds as layers' costs have them: `llm.block`.
  std::int32_t alike = 1;  ///< Layers like this one in its module.
  bool is_first = true;    ///< Of these.
};

class StageBench {
 public:
  /// Of the job counts its model; its data where they are asked for: the shortest good samples of
  /// the first hundred that have each medium, and text alone.
  /// Errors: as `prepare` and `check_stage_families`; of the job's data as `Dataset::open`, and
  /// bad_data: fewer than two good samples.
  static Result<std::unique_ptr<StageBench>> create(const job::Job& job,
                                                    const BenchOptions& options);

  /// The same samples for a model whose modules of several layers are two stages each; a projector
  /// is a stage of its own then. Errors: as `create`, but none of data.
  Result<std::unique_ptr<StageBench>> halved() const;
  /// The same samples for a stage for every layer. Errors: as `halved`.
  Result<std::unique_ptr<StageBench>> layered() const;

  /// The same stages, by the same ids, as the first of two pipelines, and each sample twice. Those
  /// of even numbers, the step's first among them, are the other pipeline's, which has nodes of its
  /// own. Numbers of samples are their positions. Errors: as `place_by_hand` and `plan_iteration`.
  Result<std::unique_ptr<StageBench>> doubled() const;

  const ParallelPlan& plan() const { return plan_; }
  const JobSetup& setup() const { return setup_; }
  const IterationPlan& iteration() const { return planned_.iteration; }
  const SampleStore& store() const { return store_; }  ///< Its samples, by position.
  /// The same samples in a cut; null: there is none (`microbatches_in`).
  const IterationPlan* iteration(Cut cut) const;

  /// What a stage's device keeps, from the seed. The bench outlives it. Errors: as `seeded_store`.
  Result<StateStore> state(StageId id) const;
  /// The same values and moments in another place. Errors: as `StateStore::stage`.
  Result<StateStore> copy(const StateStore& state) const;
  /// A stage on a state, whose memory it shares. Errors: as `make_stage`.
  Result<std::unique_ptr<StageProgram>> make(StageId id, const StateStore& state) const;
  /// The engine's own instead, whatever kind the stage is of. Errors: as `built_in_stage`.
  Result<std::unique_ptr<StageProgram>> make_built_in(StageId id, const StateStore& state) const;
  /// As `stage_kind_of`.
  std::string kind_of(StageId id) const;

  /// What comes to a stage: of a sample the same at every call and in every cut. Cost: draws it.
  /// REQUIRES: there is such a cut.
  StageRows draw_inputs(StageId id, Cut cut = Cut::planned) const;

  /// `inputs`: of the cut. REQUIRES: there is such a cut; offloaded: the planned one.
  Result<StageOutcome> round(StageProgram& stage, StageId id, const RoundOptions& options,
                             const StageRows& inputs, Cut cut = Cut::planned) const {
    return run_round(stage, plan_, options.is_offloaded ? offloading_ : *iteration(cut), store_, id,
                     inputs, options);
  }

  /// Whether plans may have a stage put away what it keeps, and it keeps anything.
  bool offloads(StageId id) const;

  bool has_module(StageId id, const std::string& module) const;
  /// Of a model that is halved: its stages that have half a module of a stage of another bench.
  std::vector<StageId> halves_in(const StageBench& whole, StageId id) const;
  /// A round of a stage made anew. Errors: as `state`, `make` and `round`; what the first two
  /// throw.
  Status run_alone(StageId id) const;
  /// REQUIRES: a stage for every layer.
  LoneLayer layer_of(StageId id) const;
  /// Memory that trying a stage takes, about: copies of its state, gradients of several rounds.
  Bytes memory_for(StageId id) const;
  /// Whether the parameter of this name is to be trained.
  bool trains(const std::string& parameter) const;

 private:
  explicit StageBench(JobSetup setup) : setup_(std::move(setup)) {}
  Result<std::unique_ptr<StageBench>> recut(std::vector<HandStage> stages) const;
  Status cut(std::vector<std::vector<HandStage>> pipelines);
  Status take_samples(std::int64_t count);
  Status plan_batch();
  Status plan_cuts();
  std::vector<std::string> parameters_of(LayerId layer) const;
  at::Tensor drawn(const IterationPlan& iteration, const Message& message, bool is_gradient) const;

  JobSetup setup_;
  ParallelPlan plan_;
  std::vector<data::DecodedSample> samples_;
  SampleStore store_;
  PlannedBatch planned_;
  std::map<Cut, IterationPlan> cuts_;  ///< Other ones than the planned.
  IterationPlan offloading_;  ///< The same, with every part of encoders in host memory meanwhile.
};

}  // namespace troupe::engine
