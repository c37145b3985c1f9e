#include "engine/iteration/batch_planner.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <utility>
#include <variant>

#include "engine/iteration/pipeline_shares.hpp"
#include "scheduler/iteration/deliveries.hpp"

namespace troupe::engine {

namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

/// One sample as all nodes together know it.
struct Joined {
  SampleShape shape;
  std::set<ModuleId> media_known;
  bool has_text = false;
  std::string where;
  const SampleReport* bad = nullptr;
  NodeId bad_on;
};

void join(Joined& entry, const SampleReport& sample, NodeId node) {
  if (sample.bad) {
    if (entry.bad && entry.bad_on <= node) return;
    entry.bad = &sample;
    entry.bad_on = node;
    return;
  }
  entry.shape.id = sample.id;
  auto& media = entry.shape.media;
  for (const ModuleMedia& items : sample.media)
    if (!entry.media_known.contains(items.module)) media.push_back(items);
  entry.media_known.insert(sample.media_known.begin(), sample.media_known.end());
  if (!sample.has_text) return;
  entry.has_text = true;
  entry.where = sample.where;
  entry.shape.llm_tokens = sample.text_tokens;
  entry.shape.trained_tokens = sample.trained_tokens;
  entry.shape.markers = sample.markers;
}

/// Per position of the span what reports say of it.
Result<std::vector<Joined>> join_all(const data::BatchSpan& span,
                                     std::span<const BatchReport> reports) {
  std::vector<Joined> joined(static_cast<std::size_t>(span.size()));
  for (const BatchReport& report : reports)
    for (const SampleReport& sample : report.samples) {
      if (sample.position < span.begin || sample.position >= span.end)
        return Error{Errc::internal, "a node reported a sample outside the batch", sample.id, {}};
      join(joined[static_cast<std::size_t>(sample.position - span.begin)], sample, report.node);
    }
  return joined;
}

bool knows(const Joined& entry, const std::vector<ModuleId>& encoders) {
  return entry.has_text && std::all_of(encoders.begin(), encoders.end(), [&](ModuleId encoder) {
           return entry.media_known.contains(encoder);
         });
}

Error nobody_reported(std::int64_t position) {
  return {Errc::internal, "no node reported position " + std::to_string(position), {}, {}};
}

/// Adds the rows of media to its length. REQUIRES: it is known.
SampleShape whole_shape(Joined& entry, std::int64_t position) {
  SampleShape shape = std::move(entry.shape);
  std::sort(shape.media.begin(), shape.media.end(),
            [](const ModuleMedia& a, const ModuleMedia& b) { return a.module < b.module; });
  shape.position = position;
  for (const auto& media : shape.media) shape.llm_tokens += shape.output_rows(media.module);
  return shape;
}

data::BadSample bad_sample(const SampleReport& report) {
  return {report.id,         static_cast<data::BadKind>(report.bad_kind),
          report.bad_file,   report.where,
          report.bad_reason, report.bad_fix};
}

/// What a node says of its own work, beside what it found.
void add_account(const BatchReport& report, PlannedBatch& planned) {
  planned.decode_ms += report.decode_ms;
  if (report.measured) planned.measured += std::ssize(report.samples);
  planned.indexed += report.indexed;
  planned.notes.insert(planned.notes.end(), report.notes.begin(), report.notes.end());
}

/// A sample that decoding leaves, or why it is dropped.
using Kept = std::variant<SampleShape, data::BadSample>;

Kept keep(Joined& entry, std::int64_t position, TokenCount max_seq_len) {
  if (entry.bad) return bad_sample(*entry.bad);
  SampleShape shape = whole_shape(entry, position);
  if (max_seq_len > 0 && shape.llm_tokens > max_seq_len)
    return data::too_long(shape.id, entry.where, shape.llm_tokens, max_seq_len);
  return shape;
}

}  // namespace

std::map<NodeId, BatchOrder> BatchPlanner::empty_orders(std::int64_t batch,
                                                        std::int64_t epoch) const {
  std::map<NodeId, BatchOrder> orders;
  for (const NodeId node : plan_.nodes())
    orders[node] = {options_.epoch_number, batch, epoch, {}, options_.epochs.stretches()};
  return orders;
}

std::map<NodeId, BatchOrder> BatchPlanner::measures(std::int64_t batch) const {
  const auto span = options_.epochs.span(batch, options_.global_batch_size);
  auto orders = empty_orders(batch, span.epoch);
  std::set<std::pair<std::size_t, NodeId>> loads;  // Who has the fewest stands first.
  for (auto& [node, order] : orders) {
    order.measure = true;
    loads.emplace(0, node);
  }
  const auto encoders = all_encoders(plan_.model);
  for (std::int64_t position = span.begin; position < span.end; ++position) {
    const auto least = std::find_if(loads.begin(), loads.end(), [&](const auto& load) {
      return options_.sources.is_seen_by(load.second, span.epoch, position);
    });
    if (least == loads.end()) continue;
    const auto [count, node] = *least;
    orders.at(node).samples.push_back({position, encoders, true});
    loads.erase(least);
    loads.emplace(count + 1, node);
  }
  return orders;
}

Status BatchPlanner::share_out(std::int64_t epoch, std::int64_t places_before,
                               std::vector<SampleShape>& samples) const {
  if (options_.sources.all_seen()) return Done{};
  for (SampleShape& sample : samples)
    sample.seen_by = options_.sources.seen_by(epoch, sample.position - places_before);
  return scheduler::choose_decoders(plan_, samples);
}

Result<std::map<NodeId, BatchOrder>> BatchPlanner::orders(std::int64_t batch,
                                                          std::span<const BatchReport> measured) {
  const auto begin = Clock::now();
  Draft draft;
  PlannedBatch& planned = draft.planned;
  planned.batch = batch;
  planned.span = options_.epochs.span(batch, options_.global_batch_size);
  for (const BatchReport& report : measured) add_account(report, planned);
  auto joined = join_all(planned.span, measured);
  if (!joined.ok()) return std::move(joined).error();
  const auto encoders = all_encoders(plan_.model);
  DealtBatch good{batch + 1, options_.epoch_number, {}};
  for (std::int64_t position = planned.span.begin; position < planned.span.end; ++position) {
    Joined& entry = joined.value()[static_cast<std::size_t>(position - planned.span.begin)];
    if (!entry.bad && !knows(entry, encoders)) return nobody_reported(position);
    Kept kept = keep(entry, places_before(planned) + position, options_.max_seq_len);
    if (auto* shape = std::get_if<SampleShape>(&kept))
      good.samples.push_back(std::move(*shape));
    else
      planned.dropped.push_back({position, std::get<data::BadSample>(std::move(kept))});
  }
  if (auto shared = share_out(planned.span.epoch, places_before(planned), good.samples);
      !shared.ok())
    return std::move(shared).error();
  auto predicted = deal_and_plan(good);
  std::map<NodeId, BatchOrder> orders;
  if (predicted.ok()) {
    draft.predicted = std::move(predicted).value();
    const Prediction& prediction = draft.predicted.prediction;
    speeds_.note(shares_of(plan_, prediction), prediction.planned_stage_ms);
    orders = orders_of(draft);
  } else {
    draft.refusal = RefusedBatch{batch, options_.epoch_number, std::move(predicted).error(),
                                 std::move(good.samples)};
    orders = empty_orders(batch, planned.span.epoch);
  }
  planned.dealt = speeds_.known();
  planned.plan_ms = ms_since(begin);
  drafts_.insert_or_assign(batch, std::move(draft));
  return orders;
}

Result<PredictedIteration> BatchPlanner::deal_and_plan(DealtBatch& good) const {
  auto dealt = microbatching_.deal(std::move(good), speeds_);
  if (!dealt.ok()) return std::move(dealt).error();
  good = std::move(dealt).value();
  return microbatching_.plan_kept(good);
}

std::map<NodeId, BatchOrder> BatchPlanner::orders_of(const Draft& draft) const {
  const PlannedBatch& planned = draft.planned;
  const IterationPlan& iteration = draft.predicted.iteration;
  std::map<NodeId, std::map<std::int32_t, OrderedSample>> wanted;  // By place in the batch.
  const SampleUnits units(iteration.samples, iteration.pieces);
  // Where the stage's node sees the sample, else where it is decoded for it.
  const auto entry = [&](NodeId node, std::int32_t unit) -> OrderedSample& {
    const SampleShape& sample = units.shape(units.sample_of(unit));
    auto& own = wanted[sample.is_seen_by(node) ? node : sample.decoder][units.sample_of(unit)];
    own.position = sample.position - places_before(planned);
    return own;
  };
  for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
    const auto reads = scheduler::content_reads(plan_, StageId{s});
    const NodeId node = plan_.node_of(StageId{s});
    for (const Microbatch& microbatch : iteration.microbatches[plan_.stages[s].replica.index()])
      for (const Part& part : microbatch.parts)
        for (const std::int32_t unit : part.samples) {
          for (const ModuleId module : reads.encoders)
            if (units.shape(unit).items(module)) entry(node, unit).media.push_back(module);
          if (!reads.text.empty()) entry(node, unit).text = true;
        }
  }
  auto orders = empty_orders(planned.batch, planned.span.epoch);
  for (auto& [node, samples] : wanted)
    for (auto& [sample, order] : samples) {
      // A node may have several pieces of a sample, or stages that read it, and decodes it once.
      std::sort(order.media.begin(), order.media.end());
      order.media.erase(std::unique(order.media.begin(), order.media.end()), order.media.end());
      orders.at(node).samples.push_back(std::move(order));
    }
  return orders;
}

Status BatchPlanner::amend(Draft& draft, std::span<const BatchReport> decoded) {
  PlannedBatch& planned = draft.planned;
  auto joined = join_all(planned.span, decoded);
  if (!joined.ok()) return std::move(joined).error();
  std::vector<SampleShape> samples;
  SamplePlaces places;
  for (const SampleShape& measured : draft.predicted.iteration.samples) {
    const std::int64_t position = measured.position - places_before(planned);
    Joined& entry = joined.value()[static_cast<std::size_t>(position - planned.span.begin)];
    std::vector<ModuleId> encoders;
    for (const ModuleMedia& media : measured.media) encoders.push_back(media.module);
    if (!entry.bad && !knows(entry, encoders)) return nobody_reported(position);
    Kept kept = keep(entry, measured.position, options_.max_seq_len);
    auto* shape = std::get_if<SampleShape>(&kept);
    if (shape) shape->seen_by = measured.seen_by;
    if (shape) shape->decoder = measured.decoder;
    places.push_back(shape ? std::optional(static_cast<std::int32_t>(samples.size()))
                           : std::nullopt);
    if (!shape || *shape != measured) ++planned.amended;
    if (shape)
      samples.push_back(std::move(*shape));
    else
      planned.dropped.push_back({position, std::get<data::BadSample>(std::move(kept))});
  }
  if (planned.amended == 0) return microbatching_.refresh(draft.predicted);
  std::sort(planned.dropped.begin(), planned.dropped.end(),
            [](const auto& a, const auto& b) { return a.position < b.position; });
  auto amended = microbatching_.amend(std::move(draft.predicted), samples, places);
  if (!amended.ok())
    return refuse(
        {planned.batch, options_.epoch_number, std::move(amended).error(), std::move(samples)});
  draft.predicted = std::move(amended).value();
  return Done{};
}

Error BatchPlanner::refuse(RefusedBatch refused) {
  Error why = refused.why;
  if (why.code == Errc::infeasible) refused_ = std::move(refused);
  return why;
}

Result<PlannedBatch> BatchPlanner::plan(std::int64_t batch, std::span<const BatchReport> decoded) {
  const auto begin = Clock::now();
  const auto found = drafts_.find(batch);
  if (found == drafts_.end())
    return Error{
        Errc::internal, "batch " + std::to_string(batch) + " was not measured before", {}, {}};
  Draft draft = std::move(drafts_.extract(found).mapped());
  if (draft.refusal) return refuse(*std::move(draft.refusal));
  if (auto done = amend(draft, decoded); !done.ok()) return std::move(done).error();
  PlannedBatch planned = std::move(draft.planned);
  for (const BatchReport& report : decoded) add_account(report, planned);
  planned.iteration = std::move(draft.predicted.iteration);
  planned.prediction = std::move(draft.predicted.prediction);
  if (auto sound = guard_.pass(planned.iteration, planned.prediction.calibrated_step_ms);
      !sound.ok())
    return std::move(sound).error();
  planned.check_ms = guard_.check_ms();
  if (options_.flops) planned.model_flops = options_.flops->of(planned.iteration.samples);
  planned.plan_ms += ms_since(begin);
  return planned;
}

std::vector<ModuleId> all_encoders(const ModelGraph& model) {
  std::vector<ModuleId> found;
  for (std::size_t i = 0; i < model.modules.size(); ++i)
    if (model.modules[i].kind == ModuleKind::encoder) found.push_back(ModuleId{i});
  return found;
}

}  // namespace troupe::engine
