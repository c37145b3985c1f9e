// Which node decodes what of a batch, and the iteration plan of a batch once it is decoded.
//
// Pure apart from timing itself. Owned by the scheduler actor; also used by the reference run that
// replays the plan's microbatches, so that both see the same plans.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/dealing.hpp"
#include "engine/microbatching.hpp"
#include "engine/plan_guard.hpp"
#include "runtime/data/bad_sample.hpp"
#include "runtime/data/epochs.hpp"
#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/model_flops.hpp"

namespace troupe::engine {

/// One sample of a batch as a node is to decode it.
struct OrderedSample {
  std::int64_t position = 0;    ///< In the epoch's order.
  std::vector<ModuleId> media;  ///< Encoders whose media it decodes, ascending.
  bool text = false;

  friend bool operator==(const OrderedSample&, const OrderedSample&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, OrderedSample& x) {
    return f(x.position, x.media, x.text);
  }
};

/// What a node is to decode of a batch.
struct BatchOrder {
  EpochNumber epoch_number = 0;  ///< Configuration it was ordered for; the report repeats it.
  std::int64_t batch = 0;
  std::int64_t epoch = 0;  ///< Of the data.
  std::vector<OrderedSample> samples;
  /// Which records the epochs take; none: all of them the whole data set.
  std::vector<SourceCounts> epochs = {};

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, BatchOrder& x) {
    return f(x.epoch_number, x.batch, x.epoch, x.samples, x.epochs);
  }
};

/// What a node found out about one sample. The planner joins the reports of all nodes.
struct SampleReport {
  std::int64_t position = 0;  ///< In the epoch's order.
  std::string id;
  bool bad = false;
  std::uint8_t bad_kind = 0;  ///< `data::BadKind`, with the texts below, where bad.
  std::string bad_file, bad_reason, bad_fix;
  std::string where;                  ///< Of the record; of a good sample where it has text.
  std::vector<ModuleId> media_known;  ///< Encoders whose media were decoded, as ordered.
  std::vector<ModuleMedia> media;     ///< Of these, where the sample has any.
  bool has_text = false;              ///< The two below are known.
  TokenCount text_tokens = 0;         ///< Tokens without media rows and without their placeholders.
  TokenCount trained_tokens = 0;

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, SampleReport& x) {
    return f(x.position, x.id, x.bad, x.bad_kind, x.bad_file, x.bad_reason, x.bad_fix, x.where,
             x.media_known, x.media, x.has_text, x.text_tokens, x.trained_tokens);
  }
};

/// A node's answer to a `BatchOrder`.
struct BatchReport {
  NodeId node;
  EpochNumber epoch_number = 0;
  std::int64_t batch = 0;
  std::vector<SampleReport> samples;
  double decode_ms = 0;

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, BatchReport& x) {
    return f(x.node, x.epoch_number, x.batch, x.samples, x.decode_ms);
  }
};

/// A sample that was dropped, and where it stood.
struct DroppedSample {
  std::int64_t position = 0;
  data::BadSample why;
};

/// A batch that is ready to be trained. `iteration.samples` is empty where every sample was bad.
struct PlannedBatch {
  std::int64_t batch = 0;  ///< From 0, running on across epochs; the step is batch + 1.
  data::BatchSpan span;
  IterationPlan iteration;
  Prediction prediction;
  std::vector<DroppedSample> dropped;  ///< In order of position.
  double plan_ms = 0;
  double check_ms = 0;     ///< Of planning: proving the plan sound (plan_guard.hpp); 0: not done.
  double decode_ms = 0;    ///< Sum over nodes and threads.
  double model_flops = 0;  ///< What its samples need (scheduler/model_flops.hpp).
  std::vector<PipelineShare> dealt;  ///< As `Dealing::known` with this batch.
};

struct BatchPlannerOptions {
  data::Epochs epochs;
  std::int64_t global_batch_size = 1;
  std::int64_t max_seq_len = 0;  ///< 0: no limit.
  EpochNumber epoch_number = 0;
  MicrobatchingOptions microbatching;
  std::shared_ptr<const PlanningCosts> costs;          ///< See `Microbatching`.
  std::shared_ptr<const scheduler::ModelFlops> flops;  ///< Null: they are not counted.
  /// Batches whose media are ordered before the one at hand is planned.
  std::int64_t prefetch = 2;
};

class BatchPlanner {
 public:
  /// `plan` outlives the planner.
  BatchPlanner(const ParallelPlan& plan, BatchPlannerOptions options)
      : plan_(plan),
        options_(std::move(options)),
        microbatching_(plan, options_.microbatching, options_.costs),
        guard_(plan),
        dealing_(plan.pipelines.size(), options_.prefetch + 1) {}

  /// Per node (ascending) what it decodes of a batch: an encoder's media where it begins in a
  /// pipeline, text where the llm begins and ends. Positions are dealt to pipelines in contiguous
  /// runs, longer ones to faster pipelines (dealing.hpp); a sample is trained by the pipeline it
  /// was dealt to, so no media move.
  /// REQUIRES: batches before `batch - prefetch` were planned.
  std::map<NodeId, BatchOrder> orders(std::int64_t batch) const;

  /// Joins the nodes' reports, in whatever order they came, drops bad samples everywhere, plans the
  /// rest. Of two faults of a sample the one on the lower node is named.
  ///
  /// Errors:
  /// - internal: a report is missing, reports of one sample contradict each other, or the plan is
  ///   unsound.
  /// - as `Microbatching::plan`.
  /// REQUIRES: batches come in order.
  Result<PlannedBatch> plan(std::int64_t batch, std::span<const BatchReport> reports);

  /// As `Dealing::restore`; before the first batch.
  void restore(const std::vector<DealNote>& deals) { dealing_.restore(deals); }
  /// As `Microbatching::learned` and `restore`; the latter before the first batch.
  LearnedCosts learned() const { return microbatching_.learned(); }
  void restore(const LearnedCosts& learned) { microbatching_.restore(learned); }

  /// As `Microbatching::learn`.
  void learn(const PlannedBatch& batch, std::span<const observe::TraceEvent> events,
             double step_ms) {
    microbatching_.learn(batch.iteration, batch.prediction, events, step_ms);
  }

 private:
  /// Per position of a batch: its pipeline.
  std::vector<std::size_t> deal(std::int64_t batch, std::int64_t size) const;
  void note(const PlannedBatch& planned);

  const ParallelPlan& plan_;
  BatchPlannerOptions options_;
  Microbatching microbatching_;
  PlanGuard guard_;
  Dealing dealing_;
};

/// Encoders of the model, ascending: of a good sample the media of each are known, though it may
/// have none.
std::vector<ModuleId> all_encoders(const ModelGraph& model);

/// The pieces of an iteration that one node needs: the action lists of other nodes' devices are
/// empty, everything else is whole.
IterationPlan slice_for(const IterationPlan& iteration, const ParallelPlan& plan, NodeId node);

}  // namespace troupe::engine
