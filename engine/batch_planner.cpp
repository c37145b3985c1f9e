#include "engine/batch_planner.hpp"

#include <algorithm>
#include <chrono>
#include <set>

#include "scheduler/plan_iteration.hpp"

namespace troupe::engine {

namespace {

/// Nodes of a pipeline where encoders begin, and where the llm begins and ends.
struct Readers {
  std::set<NodeId> media;
  std::set<NodeId> text;
};

Readers readers_of(const ParallelPlan& plan, const Pipeline& pipeline) {
  Readers readers;
  for (const StageId stage : pipeline.stages) {
    for (const LayerRun& run : plan.at(stage).runs) {
      const ModuleSpec& module = plan.model.at(run.module);
      const bool first = run.layers.begin == 0;
      const bool last = run.layers.end == static_cast<std::int32_t>(module.layers.size());
      if (module.kind == ModuleKind::encoder && first) readers.media.insert(plan.node_of(stage));
      if (module.kind == ModuleKind::llm && (first || last))
        readers.text.insert(plan.node_of(stage));
    }
  }
  return readers;
}

/// One sample as all nodes together know it.
struct Joined {
  SampleShape shape;
  bool has_media = false;
  bool has_text = false;
  const SampleReport* bad = nullptr;
};

data::BadSample bad_sample(const SampleReport& report) {
  return {report.id, static_cast<data::BadKind>(report.bad_kind), report.bad_file, report.bad_where,
          report.bad_reason};
}

}  // namespace

std::size_t BatchPlanner::pipeline_of(std::int64_t offset, std::int64_t count) const {
  const auto pipelines = static_cast<std::int64_t>(plan_.pipelines.size());
  const std::int64_t base = count / pipelines, longer = count % pipelines;
  const std::int64_t in_longer = longer * (base + 1);
  if (offset < in_longer) return static_cast<std::size_t>(offset / (base + 1));
  return static_cast<std::size_t>(longer + (offset - in_longer) / base);
}

std::map<NodeId, BatchOrder> BatchPlanner::orders(std::int64_t batch) const {
  const auto span = data::batch_span(batch, options_.global_batch_size, options_.record_count);
  std::map<NodeId, BatchOrder> orders;
  for (const DeviceSlot& device : plan_.devices) orders[device.node] = {batch, span.epoch, {}};
  std::vector<Readers> readers;
  for (const Pipeline& pipeline : plan_.pipelines) readers.push_back(readers_of(plan_, pipeline));
  for (std::int64_t offset = 0; offset < span.size(); ++offset) {
    const Readers& pipeline = readers[pipeline_of(offset, span.size())];
    for (auto& [node, order] : orders) {
      const bool media = pipeline.media.contains(node), text = pipeline.text.contains(node);
      if (media || text) order.samples.push_back({span.begin + offset, media, text});
    }
  }
  return orders;
}

Result<PlannedBatch> BatchPlanner::plan(std::int64_t batch,
                                        std::span<const BatchReport> reports) const {
  const auto begin = std::chrono::steady_clock::now();
  PlannedBatch planned;
  planned.batch = batch;
  planned.span = data::batch_span(batch, options_.global_batch_size, options_.record_count);
  const auto& span = planned.span;
  std::vector<Joined> joined(static_cast<std::size_t>(span.size()));
  for (const BatchReport& report : reports) {
    planned.decode_ms += report.decode_ms;
    for (const SampleReport& sample : report.samples) {
      if (sample.position < span.begin || sample.position >= span.end)
        return Error{Errc::internal, "a node reported a sample outside the batch", sample.id, {}};
      Joined& entry = joined[static_cast<std::size_t>(sample.position - span.begin)];
      if (sample.bad) {
        if (!entry.bad) entry.bad = &sample;
        continue;
      }
      entry.shape.id = sample.id;
      if (sample.has_media) entry.shape.media = sample.media;
      if (sample.has_text) {
        entry.shape.llm_tokens = sample.text_tokens;
        entry.shape.trained_tokens = sample.trained_tokens;
      }
      entry.has_media |= sample.has_media;
      entry.has_text |= sample.has_text;
    }
  }
  scheduler::IterationInput input;
  input.step = batch + 1;
  input.epoch_number = options_.epoch_number;
  input.schedule = options_.schedule;
  std::vector<std::int32_t> per_pipeline(plan_.pipelines.size());
  const bool wants_media =
      std::any_of(plan_.model.modules.begin(), plan_.model.modules.end(),
                  [](const ModuleSpec& module) { return module.kind == ModuleKind::encoder; });
  for (std::int64_t offset = 0; offset < span.size(); ++offset) {
    Joined& entry = joined[static_cast<std::size_t>(offset)];
    if (entry.bad) {
      planned.dropped.push_back({span.begin + offset, bad_sample(*entry.bad)});
      continue;
    }
    if (!entry.has_text || (wants_media && !entry.has_media))
      return Error{Errc::internal,
                   "no node reported position " + std::to_string(span.begin + offset),
                   {},
                   {}};
    SampleShape& shape = entry.shape;
    shape.position = span.epoch * options_.record_count + span.begin + offset;
    for (const auto& media : shape.media) shape.llm_tokens += shape.output_rows(media.module);
    if (options_.max_seq_len > 0 && shape.llm_tokens > options_.max_seq_len) {
      planned.dropped.push_back(
          {span.begin + offset,
           {shape.id,
            data::BadKind::too_long,
            {},
            {},
            "its llm sequence has " + std::to_string(shape.llm_tokens) +
                " tokens, data.max_seq_len is " + std::to_string(options_.max_seq_len)}});
      continue;
    }
    ++per_pipeline[pipeline_of(offset, span.size())];
    input.samples.push_back(std::move(shape));
  }
  std::int32_t first = 0;
  for (const std::int32_t count : per_pipeline) {
    auto cut =
        scheduler::assign_by_count(count, 1, static_cast<std::int32_t>(options_.microbatches));
    for (auto* side : {&cut.front().encoder, &cut.front().llm})
      for (auto& microbatch : *side)
        for (auto& part : microbatch.parts)
          for (auto& sample : part.samples) sample += first;
    input.microbatches.push_back(std::move(cut.front()));
    first += count;
  }
  auto iteration = scheduler::plan_iteration(plan_, std::move(input));
  if (!iteration.ok()) return std::move(iteration).error();
  planned.iteration = std::move(iteration).value();
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - begin;
  planned.plan_ms = elapsed.count();
  return planned;
}

IterationPlan slice_for(const IterationPlan& iteration, const ParallelPlan& plan, NodeId node) {
  IterationPlan slice = iteration;
  for (std::size_t device = 0; device < slice.actions.size(); ++device)
    if (plan.devices[device].node != node) slice.actions[device].clear();
  return slice;
}

}  // namespace troupe::engine
