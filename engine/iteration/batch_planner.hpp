// The way of a batch to its plan: nodes measure its samples, the plan is made from the lengths,
// each node decodes what the plan has it work on, and what decoding finds different is put right.
//
// Pure apart from timing itself. Owned by the scheduler actor; also used by the reference run that
// replays the plan's microbatches, so that both see the same plans.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/iteration/microbatching.hpp"
#include "engine/iteration/pipeline_speeds.hpp"
#include "engine/iteration/plan_guard.hpp"
#include "engine/iteration/refused_batch.hpp"
#include "runtime/data/batches/epochs.hpp"
#include "runtime/data/batches/sample_sources.hpp"
#include "runtime/data/samples/bad_sample.hpp"
#include "runtime/vocabulary/iteration_plan.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/cost/model_flops.hpp"

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

/// What a node is to measure or to decode of a batch.
struct BatchOrder {
  EpochNumber epoch_number = 0;  ///< Configuration it was ordered for; the report repeats it.
  std::int64_t batch = 0;
  std::int64_t epoch = 0;  ///< Of the data.
  std::vector<OrderedSample> samples;
  /// Which records the epochs take; none: all of them the whole data set.
  std::vector<SourceCounts> epochs = {};
  bool measure = false;  ///< Lengths of whole samples, from text and headers; nothing is decoded.

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, BatchOrder& x) {
    return f(x.epoch_number, x.batch, x.epoch, x.samples, x.epochs, x.measure);
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
  std::vector<ModuleId> media_known;  ///< Encoders whose media were looked at, as ordered.
  std::vector<ModuleMedia> media;     ///< Of these, where the sample has any.
  bool has_text = false;              ///< The three below are known.
  TokenCount text_tokens = 0;         ///< Tokens without media rows and without their placeholders.
  TokenCount trained_tokens = 0;
  std::vector<MediaMarker> markers = {};  ///< As in `SampleShape`.

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, SampleReport& x) {
    return f(x.position, x.id, x.bad, x.bad_kind, x.bad_file, x.bad_reason, x.bad_fix, x.where,
             x.media_known, x.media, x.has_text, x.text_tokens, x.trained_tokens, x.markers);
  }
};

/// A node's answer to a `BatchOrder`.
struct BatchReport {
  NodeId node;
  EpochNumber epoch_number = 0;
  std::int64_t batch = 0;
  std::vector<SampleReport> samples;
  double decode_ms = 0;
  bool measured = false;                ///< It answers an order to measure.
  std::int64_t indexed = 0;             ///< Of samples that were measured: those an index knew.
  std::vector<std::string> notes = {};  ///< What users should know of the node's index.

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, BatchReport& x) {
    return f(x.node, x.epoch_number, x.batch, x.samples, x.decode_ms, x.measured, x.indexed,
             x.notes);
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
  double decode_ms = 0;    ///< Sum over nodes and threads; measuring is part of it.
  double model_flops = 0;  ///< What its samples need (scheduler/cost/model_flops.hpp).
  std::vector<PipelineShare> dealt;  ///< As `PipelineSpeeds::known` with this batch.
  std::int64_t amended = 0;   ///< Samples that decoding found different, dropped ones included.
  std::int64_t measured = 0;  ///< Samples whose lengths were looked up.
  std::int64_t indexed = 0;   ///< Of them, those an index knew (runtime/data/lengths).
  std::vector<std::string> notes = {};  ///< As `BatchReport::notes`, of all nodes.
};

struct BatchPlannerOptions {
  data::Epochs epochs;
  std::int64_t global_batch_size = 1;
  std::int64_t max_seq_len = 0;  ///< 0: no limit.
  EpochNumber epoch_number = 0;
  MicrobatchingOptions microbatching;
  std::shared_ptr<const PlanningCosts> costs;          ///< See `Microbatching`.
  std::shared_ptr<const scheduler::ModelFlops> flops;  ///< Null: they are not counted.
  data::SampleSources sources = {};                    ///< Which nodes see a sample.
};

class BatchPlanner {
 public:
  /// `plan` outlives the planner.
  BatchPlanner(const ParallelPlan& plan, BatchPlannerOptions options)
      : plan_(plan),
        options_(std::move(options)),
        microbatching_(plan, options_.microbatching, options_.costs),
        guard_(plan),
        speeds_(plan.pipelines.size()) {}

  /// Per node (ascending) what it measures of a batch: all nodes share its positions out, each of
  /// which goes to one that sees it. Cost: positions x log(nodes), where each is seen by all.
  std::map<NodeId, BatchOrder> measures(std::int64_t batch) const;

  /// Plans a batch from its samples' lengths, those left out that are bad by their headers or too
  /// long. Per node (ascending) what it then decodes: of each sample an encoder's media where the
  /// replica that encodes them begins, text where the llm replica that trains it begins and ends.
  /// So no media move, and each is decoded once for an encoder. What such a node does not see is
  /// decoded by one that does, of several the one that has the fewest bytes to send, and delivered
  /// (`IterationPlan::deliveries`). Of a batch that cannot be planned
  /// nothing is decoded, and `plan` says why: it may be one that is never trained.
  ///
  /// Errors:
  /// - internal: a report is missing.
  /// - infeasible: no node of the layout sees a sample.
  /// REQUIRES: batches come in order.
  Result<std::map<NodeId, BatchOrder>> orders(std::int64_t batch,
                                              std::span<const BatchReport> measured);

  /// Joins what the nodes decoded, in whatever order it came, and puts the plan right where that
  /// is not what was measured: bad samples are dropped everywhere, others keep their places. Of two
  /// faults of a sample the one on the lower node is named.
  ///
  /// Errors:
  /// - internal: a report is missing, or the plan is unsound.
  /// - as `Microbatching::deal`, `plan` and `amend`.
  /// REQUIRES: `orders` of the batch; once for each batch.
  Result<PlannedBatch> plan(std::int64_t batch, std::span<const BatchReport> decoded);

  /// The batch that `plan` has just said is infeasible, whose samples another layout may have room
  /// for; once. None: it said nothing of the kind.
  std::optional<RefusedBatch> take_refused() { return std::exchange(refused_, std::nullopt); }

  /// As `PipelineSpeeds::restore`; before the first batch.
  void restore(const std::vector<DealNote>& deals) { speeds_.restore(deals); }
  /// As `Microbatching::learned` and `restore`; the latter before the first batch.
  LearnedCosts learned() const { return microbatching_.learned(); }
  void restore(const LearnedCosts& learned) { microbatching_.restore(learned); }

  /// As `Microbatching::take_times`: of batches that are not ordered yet.
  void take_times(NodeTimes times) { microbatching_.take_times(std::move(times)); }

  /// As `Microbatching::learn`.
  void learn(const PlannedBatch& batch, std::span<const observe::TraceEvent> events,
             double step_ms) {
    microbatching_.learn(batch.iteration, batch.prediction, events, step_ms);
  }

 private:
  /// A batch whose samples are being decoded.
  struct Draft {
    PlannedBatch planned;  ///< As far as lengths tell.
    PredictedIteration predicted;
    std::optional<RefusedBatch> refusal;  ///< It cannot be planned.
  };

  /// Positions of the order in all epochs before the batch's.
  std::int64_t places_before(const PlannedBatch& planned) const {
    return options_.epochs.places_before(planned.span.epoch);
  }
  /// Says of samples that some nodes do not see who sees them, and who decodes them for the others.
  Status share_out(std::int64_t epoch, std::int64_t places_before,
                   std::vector<SampleShape>& samples) const;
  std::map<NodeId, BatchOrder> empty_orders(std::int64_t batch, std::int64_t epoch) const;
  std::map<NodeId, BatchOrder> orders_of(const Draft& draft) const;
  /// Where that is infeasible `good` keeps its samples.
  Result<PredictedIteration> deal_and_plan(DealtBatch& good) const;
  /// Puts right what decoding found different.
  Status amend(Draft& draft, std::span<const BatchReport> decoded);
  /// Keeps it for `take_refused`; its reason.
  Error refuse(RefusedBatch refused);

  const ParallelPlan& plan_;
  BatchPlannerOptions options_;
  Microbatching microbatching_;
  PlanGuard guard_;
  PipelineSpeeds speeds_;
  std::map<std::int64_t, Draft> drafts_;
  std::optional<RefusedBatch> refused_;
};

/// Encoders of the model, ascending: of a good sample the media of each are known, though it may
/// have none.
std::vector<ModuleId> all_encoders(const ModelGraph& model);

}  // namespace troupe::engine
