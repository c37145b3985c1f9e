#include "engine/batch_planner.hpp"

#include <algorithm>
#include <chrono>
#include <set>

#include "engine/pipeline_shares.hpp"

namespace troupe::engine {

namespace {

/// Nodes of a pipeline where encoders begin (which ones), and where the llm begins and ends.
struct Readers {
  std::map<NodeId, std::set<ModuleId>> media;
  std::set<NodeId> text;
};

Readers readers_of(const ParallelPlan& plan, PipelineId pipeline) {
  Readers readers;
  for (const StageId stage : plan.stages_of(pipeline)) {
    for (const LayerRun& run : plan.at(stage).runs) {
      const ModuleSpec& module = plan.model.at(run.module);
      const bool first = run.layers.begin == 0;
      const bool last = run.layers.end == static_cast<std::int32_t>(module.layers.size());
      if (module.kind == ModuleKind::encoder && first)
        readers.media[plan.node_of(stage)].insert(run.module);
      if (module.kind == ModuleKind::llm && (first || last))
        readers.text.insert(plan.node_of(stage));
    }
  }
  return readers;
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
}

data::BadSample bad_sample(const SampleReport& report) {
  return {report.id,         static_cast<data::BadKind>(report.bad_kind),
          report.bad_file,   report.where,
          report.bad_reason, report.bad_fix};
}

}  // namespace

std::vector<std::size_t> BatchPlanner::deal(std::int64_t batch, std::int64_t size) const {
  std::vector<std::size_t> pipelines;
  const auto counts = dealing_.counts(batch, size);
  for (std::size_t p = 0; p < counts.size(); ++p)
    pipelines.insert(pipelines.end(), static_cast<std::size_t>(counts[p]), p);
  return pipelines;
}

void BatchPlanner::note(const PlannedBatch& planned) {
  dealing_.note(planned.batch, shares_of(plan_, planned.prediction));
}

std::map<NodeId, BatchOrder> BatchPlanner::orders(std::int64_t batch) const {
  const auto span = options_.epochs.span(batch, options_.global_batch_size);
  std::map<NodeId, BatchOrder> orders;
  for (const DeviceSlot& device : plan_.devices)
    orders[device.node] = {
        options_.epoch_number, batch, span.epoch, {}, options_.epochs.stretches()};
  std::vector<Readers> readers;
  for (std::size_t p = 0; p < plan_.pipelines.size(); ++p)
    readers.push_back(readers_of(plan_, PipelineId{p}));
  const auto dealt = deal(batch, span.size());
  for (std::int64_t offset = 0; offset < span.size(); ++offset) {
    const Readers& pipeline = readers[dealt[static_cast<std::size_t>(offset)]];
    for (auto& [node, order] : orders) {
      const auto media = pipeline.media.find(node);
      const bool text = pipeline.text.contains(node);
      OrderedSample sample{span.begin + offset, {}, text};
      if (media != pipeline.media.end())
        sample.media.assign(media->second.begin(), media->second.end());
      if (text || !sample.media.empty()) order.samples.push_back(std::move(sample));
    }
  }
  return orders;
}

Result<PlannedBatch> BatchPlanner::plan(std::int64_t batch, std::span<const BatchReport> reports) {
  const auto begin = std::chrono::steady_clock::now();
  PlannedBatch planned;
  planned.batch = batch;
  planned.span = options_.epochs.span(batch, options_.global_batch_size);
  const auto& span = planned.span;
  std::vector<Joined> joined(static_cast<std::size_t>(span.size()));
  for (const BatchReport& report : reports) {
    planned.decode_ms += report.decode_ms;
    for (const SampleReport& sample : report.samples) {
      if (sample.position < span.begin || sample.position >= span.end)
        return Error{Errc::internal, "a node reported a sample outside the batch", sample.id, {}};
      join(joined[static_cast<std::size_t>(sample.position - span.begin)], sample, report.node);
    }
  }
  const auto pipelines = deal(batch, span.size());
  DealtBatch dealt{batch + 1, options_.epoch_number, {}, {}};
  dealt.pipelines.resize(plan_.pipelines.size());
  const auto encoders = all_encoders(plan_.model);
  const std::set<ModuleId> wanted_media(encoders.begin(), encoders.end());
  for (std::int64_t offset = 0; offset < span.size(); ++offset) {
    Joined& entry = joined[static_cast<std::size_t>(offset)];
    if (entry.bad) {
      planned.dropped.push_back({span.begin + offset, bad_sample(*entry.bad)});
      continue;
    }
    if (!entry.has_text || entry.media_known != wanted_media)
      return Error{Errc::internal,
                   "no node reported position " + std::to_string(span.begin + offset),
                   {},
                   {}};
    SampleShape& shape = entry.shape;
    std::sort(shape.media.begin(), shape.media.end(),
              [](const ModuleMedia& a, const ModuleMedia& b) { return a.module < b.module; });
    shape.position = options_.epochs.places_before(span.epoch) + span.begin + offset;
    for (const auto& media : shape.media) shape.llm_tokens += shape.output_rows(media.module);
    if (options_.max_seq_len > 0 && shape.llm_tokens > options_.max_seq_len) {
      planned.dropped.push_back(
          {span.begin + offset,
           data::too_long(shape.id, entry.where, shape.llm_tokens, options_.max_seq_len)});
      continue;
    }
    dealt.pipelines[pipelines[static_cast<std::size_t>(offset)]].push_back(
        static_cast<std::int32_t>(dealt.samples.size()));
    dealt.samples.push_back(std::move(shape));
  }
  auto iteration = microbatching_.plan(std::move(dealt));
  if (!iteration.ok()) return std::move(iteration).error();
  planned.iteration = std::move(iteration.value().iteration);
  planned.prediction = std::move(iteration.value().prediction);
  if (auto sound = guard_.pass(planned.iteration, planned.prediction.calibrated_step_ms);
      !sound.ok())
    return std::move(sound).error();
  planned.check_ms = guard_.check_ms();
  if (options_.flops) planned.model_flops = options_.flops->of(planned.iteration.samples);
  note(planned);
  planned.dealt = dealing_.known(batch);
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - begin;
  planned.plan_ms = elapsed.count();
  return planned;
}

std::vector<ModuleId> all_encoders(const ModelGraph& model) {
  std::vector<ModuleId> found;
  for (std::size_t i = 0; i < model.modules.size(); ++i)
    if (model.modules[i].kind == ModuleKind::encoder) found.push_back(ModuleId{i});
  return found;
}

IterationPlan slice_for(const IterationPlan& iteration, const ParallelPlan& plan, NodeId node) {
  IterationPlan slice = iteration;
  for (std::size_t device = 0; device < slice.actions.size(); ++device)
    if (plan.devices[device].node != node) slice.actions[device].clear();
  return slice;
}

}  // namespace troupe::engine
