// From a job to the values that every process of it derives in the same way: model graph, layout,
// data options, optimizer settings, length of training.
//
// Pure, except for opening the data set where asked. Used by head, nodes and the reference runs, so
// that none of them can disagree.

#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/iteration/batch_planner.hpp"
#include "engine/iteration/microbatching.hpp"
#include "engine/iteration/prepared_votes.hpp"
#include "models/factory.hpp"
#include "runtime/data/samples/dataset.hpp"
#include "runtime/data/samples/decode_sample.hpp"
#include "runtime/data/samples/measure_sample.hpp"
#include "runtime/job/job.hpp"
#include "runtime/state/adamw.hpp"
#include "runtime/state/learning_rate.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/route.hpp"

namespace troupe::engine {

/// Where a job's layer costs come from, so that its run can be held against them.
struct ProfileOrigin {
  std::filesystem::path file;
  std::string measured_at;  ///< As `StoredProfile::measured_at`.
  double probe_ms = 0;      ///< As `StoredProfile::probe_ms`; 0: not known.
};

/// Everything about a job that needs no data.
struct JobSetup {
  job::Job job;
  ModelGraph model;
  std::vector<ParameterInfo> parameters;  ///< Of `model`.
  data::DataOptions data;
  models::LayerOptions layers;
  state::AdamWOptions adamw;
  std::vector<double> learning_rate_scales;  ///< Per module of `model`.
  /// What plans are predicted with; null until a profile is there: see `use_profile`.
  std::shared_ptr<const PlanningCosts> costs;
  ProfileOrigin profile;  ///< Of `costs`; no file: they were not measured here.
  /// Of samples that were measured before (kept_lengths.hpp); null: all are measured.
  std::shared_ptr<data::LengthIndex> lengths;

  /// Modules in the order of `model`, as the factory wants them.
  const std::vector<ModuleConfig>& modules() const { return job.modules; }
};

/// Everything about the model, and about the model and its data, that keeps a job from being
/// prepared: `models::graph_problems`, `data::problems_of`, models that the data part cannot feed
/// (a vocabulary smaller than the tokenizer's), and activations that are to be recomputed under a
/// schedule that keeps them, or offloaded under one without phases. Empty: it can be prepared.
std::vector<Error> setup_problems(const job::Job& job);

/// What `cluster.sums = "nccl"` means for sums in this type: NCCL's own order; in fp64, which is
/// for parity, the chain's, since its own would be off by more than rounding needs.
SumOrder calls_in(Dtype dtype);

/// `cluster.sums = "auto"` is taken for messages until who plans resolves it (resolve_sums.hpp).
/// Errors: the first of `setup_problems`. Throws UserFault: as `note_held_bytes`.
Result<JobSetup> prepare(const job::Job& job);

/// Has gradients added up by this `cluster.sums`, as if the job that was prepared had said so.
void use_sums(JobSetup& setup, const std::string& sums);

/// The speeds as a job sees them: where all its nodes are local, their network is the machine.
scheduler::DeviceSpeeds speeds_for(const job::Cluster& cluster, scheduler::DeviceSpeeds speeds);

/// How steps of the job are predicted on devices of these speeds.
scheduler::PredictionOptions prediction_of(const JobSetup& setup,
                                           const scheduler::DeviceSpeeds& speeds);

/// The route that a job pins for rows between module groups; none: what is predicted to take least.
std::optional<Route> pinned_route(const job::Scheduler& scheduler);

/// What the job's layers cost by a profile of its model, which is the same whether activations are
/// recomputed, and whatever kinds of stages run them. Errors: as `scheduler::CostModel::create`.
/// Throws UserFault: as `with_stated_costs`.
Result<scheduler::CostModel> cost_model(const JobSetup& setup, const scheduler::Profile& profile);

/// Costs for planning from a profile of the job's model, on devices with this much memory each (for
/// those of this machine: `memory_at_hand`).
/// Errors: as `scheduler::CostModel::create`.
Result<std::shared_ptr<const PlanningCosts>> planning_costs(const JobSetup& setup,
                                                            const scheduler::Profile& profile,
                                                            Bytes device_memory);

/// Which modules of the model take images and audio.
data::MediaModules media_modules(const JobSetup& setup);

/// What an ordered sample asks of the decoder.
data::WantedParts wanted_parts(const OrderedSample& sample, const data::MediaModules& modules);

/// What the job says about cutting a batch: nothing else of the setup is asked.
MicrobatchingOptions microbatching_options(const JobSetup& setup);

/// The same and all else that a planner has, counting the operations of the model among it.
/// REQUIRES: a configuration for each module of the model.
BatchPlannerOptions planner_options(const JobSetup& setup, data::Epochs epochs,
                                    EpochNumber epoch_number);

/// How long the job trains, and the learning rate along the way. Counts consumed positions of the
/// order (samples, dropped ones included) and planned llm tokens, so that it is known before a step
/// runs.
class TrainingLength {
 public:
  TrainingLength(const job::Job& job, const data::Epochs& epochs);

  /// Number of steps, or 0 where only the tokens decide.
  std::int64_t steps() const { return steps_; }

  /// True if the job is complete after `step` steps that consumed `tokens` llm tokens in all.
  bool reached(std::int64_t step, TokenCount tokens) const;

  /// Learning rate before module scales. `tokens_before`: llm tokens of the steps before. A job
  /// measured in tokens decays with its share of tokens.
  double learning_rate(std::int64_t step, TokenCount tokens_before) const;

 private:
  job::Duration duration_;
  std::int64_t steps_ = 0;
  double peak_ = 0;
  state::LearningRateSchedule schedule_;
};

/// Whether the bad samples found so far are still few enough.
/// Errors: bad_data: more distinct ones than `data.max_bad_fraction` of the data set.
Status check_bad_samples(const job::Job& job, std::int64_t bad_count, std::int64_t record_count);

/// A node's report on a decoded batch, for the planner.
BatchReport report_on(NodeId node, const BatchOrder& order,
                      const std::vector<data::DecodeOutcome>& outcomes, const JobSetup& setup,
                      double decode_ms);
/// The same of a batch that was measured.
BatchReport report_lengths(NodeId node, const BatchOrder& order,
                           const std::vector<data::MeasureOutcome>& outcomes, double decode_ms);

}  // namespace troupe::engine
