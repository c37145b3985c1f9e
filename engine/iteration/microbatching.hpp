// From the samples of a batch to its iteration plan: which pipeline trains which sample, which
// samples share a microbatch on either side of the boundary, which parts an encoder's microbatch
// has, and what that will cost.
//
// Deterministic: the same samples, options, costs and measurements give the same plan in every
// process; without `adaptive_correction` measurements change what is predicted alone, but for nodes
// that are said to be slow (`take_times`). Single owner, not thread-safe. The simulator that
// predicts runs the very plan that the engine will run.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "balancer/loads/workload.hpp"
#include "balancer/microbatches/policies.hpp"
#include "engine/iteration/amended_cut.hpp"
#include "engine/iteration/batch_work.hpp"
#include "engine/iteration/dealt_batch.hpp"
#include "engine/iteration/phase_exchange.hpp"
#include "engine/iteration/pipeline_speeds.hpp"
#include "engine/iteration/prediction.hpp"
#include "engine/learning/cost_correction.hpp"
#include "engine/learning/learned_state.hpp"
#include "engine/learning/stage_speeds.hpp"
#include "runtime/observe/trace_event.hpp"
#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/iteration/schedules.hpp"

namespace troupe::engine {

class PipelineCosts;

/// What a job says about cutting a batch.
struct MicrobatchingOptions {
  std::string dealing = "work";  ///< To pipelines and llm replicas: `balancer.dealing`.
  std::string exchange = "off";  ///< `balancer.exchange`.
  std::string items = "ranges";  ///< `balancer.items`.
  std::string policy = "in-order";
  scheduler::Schedule schedule;
  std::int64_t microbatches = 1;  ///< Per llm replica; some policies use fewer.
  std::uint64_t seed = 0;         ///< Of `random` and of searches; every step has its own stream.
  /// Plans that `auto` may cost, per llm replica, and whole ones that it may compare; fewer where
  /// they would take longer than a fortieth of the step, by counted work (planning_budget.hpp).
  std::int64_t evaluations = 200;
  std::int32_t max_in_flight = 0;      ///< Per stage; 0: as the schedule likes.
  bool adaptive_correction = false;    ///< Predictions follow what `learn` is told.
  bool offload_encoders = false;       ///< `scheduler.offload_encoders`: their activations.
  std::optional<Route> boundary = {};  ///< Of all boundaries; none: the one that takes least.
};

struct PredictedIteration {
  IterationPlan iteration;
  Prediction prediction;
  std::shared_ptr<const BatchWork> work = {};  ///< What it was predicted with.
};

class Microbatching {
 public:
  /// `plan` outlives this object. `costs` may be null: then a sample weighs its rows, and nothing
  /// is predicted.
  Microbatching(const ParallelPlan& plan, MicrobatchingOptions options,
                std::shared_ptr<const PlanningCosts> costs);

  /// Deals samples to pipelines (`deal_samples`), by the profile's work and the pipelines' speeds,
  /// those with slow nodes (`take_times`) as much slower as their busiest devices are then.
  /// Errors: as `scheduler::sample_workloads` and `deal_samples`.
  Result<DealtBatch> deal(DealtBatch batch, const PipelineSpeeds& speeds) const;

  /// Cuts, orders and predicts a batch. An encoder's microbatch has one part per llm microbatch
  /// that it feeds, where the schedule runs the backwards of parts apart and the encoder side
  /// trains; else one part. Samples without media go with the first part.
  ///
  /// With `exchange` encoders are balanced on their own (phase_exchange.hpp), over the replicas of
  /// all pipelines: `per-phase` always, except in a phase that it would not make more even, or
  /// where bounds on microbatches in flight leave no order for it; `auto` where the costs
  /// say a shorter step with it. Samples with many items then go in pieces (item_ranges.hpp)
  /// where whole ones would leave a phase or a round uneven, unless `items` is `whole`. By
  /// predicted time there are as many rounds as pieces allow or as whole samples do, and under a
  /// schedule with phases rounds may be spread all at once.
  ///
  /// Where module groups of a pipeline have different numbers of replicas, its samples are spread
  /// over the llm replicas by llm work and by how fast each replica's busiest device is (Entrain
  /// section 4.3; speeds are Troupe's), cut for each of them, and the encoders' microbatches dealt
  /// to the encoders' replicas in the order in which they are needed, each to the one whose busiest
  /// device has least to do.
  ///
  /// `auto` costs plans of each llm replica with the encoders that feed it alone. Where these feed
  /// others too, with an exchange or other numbers of replicas, plans of the whole step are
  /// compared: `auto`'s own, and one for each policy by which all llm replicas are cut
  /// (planning_budget.hpp: as many as there is time for). The first shortest one is taken.
  ///
  /// With a `PlanningCosts::device_memory` a microbatch of the llm holds what fits beside encoders
  /// with as many in flight as stages follow (llm_cap.hpp), and schedules run ahead as far as the
  /// largest fits. Where an exchange gives an encoder's replica more, others take it
  /// (phase_replicas.hpp); where none can, there is none, and `exchange_refused` says who lacks it.
  ///
  /// Errors: as `balancer::assign_microbatches`, `memory_bounds` and `scheduler::plan_iteration`.
  Result<PredictedIteration> plan(DealtBatch batch) const { return plan_kept(batch); }
  /// The same; where there is no plan `batch` keeps its samples.
  Result<PredictedIteration> plan_kept(DealtBatch& batch) const;

  /// The same cut (`amend_cut`) for samples that turned out otherwise than `plan` was told, ordered
  /// and predicted anew. `samples`: those that are left; a plan takes them along, none leaves them.
  /// What the prediction says of the cut (imbalance, deferred samples) stays as it was.
  ///
  /// Errors: as `plan`.
  Result<PredictedIteration> amend(PredictedIteration planned, std::vector<SampleShape>& samples,
                                   const SamplePlaces& places) const;

  /// Predicts again by what was learned since. Errors: as `scheduler::simulate`.
  Status refresh(PredictedIteration& planned) const;

  /// Holds the compute events of a finished step against what `plan` said of it. Later
  /// predictions follow the speed of each stage as a whole; plans stay as they are.
  ///
  /// With `adaptive_correction` plans follow too, shape by shape: what parts take, which searches
  /// and schedules ask for, and what samples weigh, which every policy goes by
  /// (cost_correction.hpp). A plan from corrected weights is taken unless the profile's weights
  /// give one that takes less by the same corrected costs. Learning stops where it costs more than
  /// it brings (balancer/corrections/adaptive_correction.hpp).
  void learn(const IterationPlan& iteration, const Prediction& prediction,
             std::span<const observe::TraceEvent> events, double step_ms);

  /// From now on batches are dealt, to pipelines and replicas, as nodes take `times` as long; but
  /// while corrections watch, which tell plans the same.
  void take_times(NodeTimes times) { times_ = std::move(times); }

  /// All that `learn` has taught, but for `LearnedCosts::profile`.
  LearnedCosts learned() const { return save_learned(plan_, speeds_, corrections()); }
  /// Goes on with what an earlier planner learned, on this layout or another one
  /// (learned_state.hpp); before the first batch.
  void restore(const LearnedCosts& before) {
    restore_learned(before, plan_, speeds_, correction_ ? &*correction_ : nullptr);
  }

 private:
  using Work = BatchWork;
  struct Weighed;
  struct Share;
  class Cuts;
  enum class Exchange : std::uint8_t { off, per_phase, whole_samples };
  struct Way {
    Exchange exchange = Exchange::off;
    std::string policy;
    bool is_compared = false;  ///< With plans by other policies.
    /// With an exchange K_eff of all llm replicas together.
    std::optional<std::int64_t> shared_microbatches = {};
    bool at_once = false;  ///< As `SpreadRules` has it.
  };

  /// Of each pipeline, for a unit of work or of llm work, as its nodes are at present.
  std::vector<double> ms_per_work(const PipelineSpeeds& speeds, bool llm) const;
  NodeTimes times_to_plan() const;
  /// Whether plans are made that way.
  bool tries(Exchange exchange) const;
  /// The best plan, and one by an exchange; as all below without the samples, which `batch` keeps.
  Result<PredictedIteration> best_plan(DealtBatch& batch) const;
  Result<PredictedIteration> plan_by(const DealtBatch& batch, Exchange exchange) const;
  /// Numbers of rounds, and whether they are spread at once, of which the shortest step is taken;
  /// the first one of equal ones. Not empty.
  std::vector<Way> ways_of(Exchange exchange, const Work& work) const;
  /// Whether `auto` cannot tell from llm replicas alone how long a step takes.
  bool compares_whole_plans(Exchange exchange) const;
  Result<PredictedIteration> plan_one(const DealtBatch& batch, std::shared_ptr<const Work> work,
                                      Cuts& cuts, const Way& way) const;
  /// Of the step, by what plans are made of: the profile, or with correction what was learned.
  double planned_step_ms(const Result<PredictedIteration>& made) const;
  /// What samples weigh for who trains them: with an exchange their llm work alone.
  static std::vector<balancer::Workload> weights_for(Exchange exchange,
                                                     std::vector<balancer::Workload> weights);

  /// What samples and these pieces of them take, without rooms for a cut of them.
  Result<Weighed> work_of(const DealtBatch& batch, std::vector<SamplePiece> pieces) const;
  /// The same with the pieces that this way of planning takes samples in, and rooms.
  Result<Weighed> work_for(const DealtBatch& batch, Exchange exchange) const;
  /// The samples of each llm replica of a pipeline.
  Result<std::vector<Share>> shares_of(const DealtBatch& batch, const Work& work,
                                       PipelineId pipeline, Exchange exchange) const;
  Result<balancer::MicrobatchPlan> cut(const DealtBatch& batch, const Work& work,
                                       const Share& share, const Way& way) const;
  /// What the policy makes of these weights of a share's samples.
  Result<balancer::MicrobatchPlan> assign(const DealtBatch& batch, const Work& work,
                                          const Share& share, const Way& way,
                                          const std::function<const PipelineCosts&()>& alone,
                                          std::span<const balancer::Workload> weights) const;
  /// The most llm work of a microbatch, where all samples of the share are so much.
  std::optional<double> llm_cap(const Work& work, const Share& share, double llm_ms) const;
  /// By this exchange and whatever way. All outlive them.
  std::shared_ptr<Cuts> cuts_of(const DealtBatch& batch, const Work& work, const SampleUnits& units,
                                Exchange exchange) const;
  /// Microbatches of all replicas. Errors: as `spread_within_rooms`.
  Result<std::vector<MicrobatchList>> deal_cuts(const Work& work, const std::vector<LlmCut>& cuts,
                                                const Way& way, Prediction& prediction) const;
  /// Those of an encoder's group, spread over its replicas.
  Result<std::vector<MicrobatchList>> spread_out(ModuleGroupId group, const Work& work,
                                                 const std::vector<LlmCut>& cuts,
                                                 const Way& way) const;
  /// Whether what is measured in this run changes predictions.
  bool is_calibrated() const { return correction_ || speeds_.known(); }
  /// `profile`: what tasks of the plan take by the profile.
  Status predict(const IterationPlan& iteration, const Work& work,
                 const scheduler::SimulationCosts& profile, Prediction& prediction) const;
  /// What follows from measured times alone.
  Status predict_present(const IterationPlan& iteration, const Work& work,
                         const scheduler::SimulationCosts& profile, Prediction& prediction) const;
  void note_present(const IterationPlan& iteration, const Work& work, scheduler::SimulatedStep step,
                    Prediction& prediction) const;
  Result<scheduler::SimulatedStep> simulate(const IterationPlan& iteration,
                                            const scheduler::SimulationCosts& costs,
                                            bool records) const;
  /// Orders and predicts what was cut.
  Result<PredictedIteration> finish(const DealtBatch& batch, const SampleUnits& units,
                                    std::shared_ptr<const Work> work,
                                    std::vector<MicrobatchList> microbatches,
                                    Prediction prediction) const;
  /// What the profile says of `work`, of parts of these microbatches alone.
  scheduler::SimulationCosts profile_costs(const Work& work,
                                           const std::vector<MicrobatchList>& microbatches) const;
  /// Costs by the profile as stages run at present.
  scheduler::SimulationCosts present_costs(scheduler::SimulationCosts profile) const;
  void correct(const IterationPlan& iteration, std::span<const observe::TraceEvent> events,
               double step_ms);
  const CostCorrection* corrections() const { return correction_ ? &*correction_ : nullptr; }
  std::vector<std::int32_t> in_flight_bounds() const;
  bool bounds_memory() const { return costs_ && costs_->device_memory > Bytes{}; }
  /// `profile`: as of `predict`.
  Result<IterationPlan> order(const DealtBatch& batch, const SampleUnits& units, const Work& work,
                              const scheduler::SimulationCosts& profile,
                              std::vector<MicrobatchList> microbatches) const;

  const ParallelPlan& plan_;
  MicrobatchingOptions options_;
  std::shared_ptr<const PlanningCosts> costs_;
  bool splits_parts_ = false;
  bool can_exchange_ = false;    ///< Some encoder has several replicas.
  std::vector<ReplicaId> llms_;  ///< Replicas of the llm, ascending.
  std::optional<CostCorrection> correction_;
  StageSpeeds speeds_;  ///< Unused with `correction_`, which knows more.
  NodeTimes times_;     ///< Of nodes that are slow.
};

}  // namespace troupe::engine
