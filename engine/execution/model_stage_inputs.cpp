// What the layers of a stage read: contents of samples, and rows that came in.

#include <ATen/ops/tensor.h>

#include <algorithm>

#include "engine/execution/mask_store.hpp"
#include "engine/execution/model_stage.hpp"
#include "engine/execution/teacher_packing.hpp"

namespace troupe::engine {

/// What a run's first layer reads besides rows, and the lengths that all its layers need.
Result<models::PackedBatch> ModelStage::pack(std::size_t run_index, PartKey part, Flight& flight) {
  const Run& run = runs()[run_index];
  const ModuleId module = run.range.module;
  const auto& part_samples = samples_of(part);
  const bool first = run.range.layers.begin == 0;
  if (plan_.model.at(module).kind == ModuleKind::teacher) return pack_teacher(run, part);
  if (module != plan_.model.llm()) return layers_.encoder_batch(run_index, part, *samples_);
  auto packed = masks_ != nullptr
                    ? masks_->take(*iteration_, plan_, id_, part)
                    : pack_text_shapes(plan_.model, iteration_->samples, part_samples);
  if (!packed.ok()) return packed;
  models::PackedBatch& batch = packed.value();
  if (first || run.ends_module) {
    auto text = pack_text(plan_.model, iteration_->samples, part_samples, *samples_);
    if (!text.ok()) return std::move(text).error();
    batch.input = text.value().token_ids;
    batch.labels = text.value().labels;
    if (first)
      if (auto done = attach_media(part, flight, text.value(), batch); !done.ok())
        return std::move(done).error();
    if (run.ends_module)
      if (auto done = attach_taught(part, flight, text.value(), batch); !done.ok())
        return std::move(done).error();
  }
  return packed;
}

/// One MediaRows per boundary message, its positions in the order of the message's samples.
Status ModelStage::attach_media(PartKey part, Flight& flight, const PackedText& text,
                                models::PackedBatch& batch) {
  const auto& part_samples = samples_of(part);
  for (const MessageId id : layers_.incoming(part)) {
    const Message& message = iteration_->at(id);
    if (!message.boundary || is_teacher(message.module)) continue;
    const ModuleId encoder = encoder_of(plan_.model, message.module);
    std::vector<std::int64_t> positions;
    for (const std::int32_t unit : message.samples) {
      const auto place =
          std::find(part_samples.begin(), part_samples.end(), layers_.units().sample_of(unit));
      const auto& list =
          text.media_positions[encoder.index()]
                              [static_cast<std::size_t>(place - part_samples.begin())];
      const auto begin = list.begin() + layers_.units().rows_before(unit);
      positions.insert(positions.end(), begin,
                       begin + layers_.units().shape(unit).output_rows(encoder));
    }
    const auto arrived = flight.arrived.find(id);
    if (arrived == flight.arrived.end() ||
        static_cast<std::int64_t>(positions.size()) != arrived->second.size(0))
      return Error{Errc::internal, "rows of a boundary message do not match its samples", {}, {}};
    batch.media.push_back({at::tensor(positions, at::kLong), arrived->second});
  }
  return Done{};
}

/// The text of a part as a teacher's layers take it; its tokens where they are read.
Result<models::PackedBatch> ModelStage::pack_teacher(const Run& run, PartKey part) const {
  const auto& part_samples = samples_of(part);
  auto packed = pack_teacher_shapes(iteration_->samples, part_samples);
  if (!packed.ok() || run.range.layers.begin > 0) return packed;
  auto text = pack_text(plan_.model, iteration_->samples, part_samples, *samples_);
  if (!text.ok()) return std::move(text).error();
  packed.value().input = text_alone(text.value());
  return packed;
}

bool ModelStage::is_teacher(ModuleId module) const {
  return plan_.model.at(module).kind == ModuleKind::teacher;
}

/// What teachers sent of a part, each one's in the order of the sequence.
Status ModelStage::attach_taught(PartKey part, Flight& flight, const PackedText& text,
                                 models::PackedBatch& batch) {
  for (std::size_t m = 0; m < plan_.model.modules.size(); ++m) {
    if (!is_teacher(ModuleId{m})) continue;
    std::map<std::int32_t, at::Tensor> rows;
    for (const MessageId id : layers_.incoming(part)) {
      const Message& message = iteration_->at(id);
      if (message.module != ModuleId{m} || !message.boundary) continue;
      const auto arrived = flight.arrived.find(id);
      if (arrived == flight.arrived.end())
        return Error{Errc::internal, "the llm's last layer before its teacher's rows", {}, {}};
      for (const RowSpan& span : row_spans(plan_.model, ModuleId{m}, RowKind::output,
                                           layers_.units().shapes(), message.samples))
        rows[span.sample] = arrived->second.narrow(0, span.begin, span.rows);
    }
    auto taught = taught_rows(plan_.model.modules[m].name, text, samples_of(part), rows);
    if (!taught.ok()) return std::move(taught).error();
    if (taught.value().rows.defined()) batch.taught.push_back(std::move(taught).value());
  }
  return Done{};
}

}  // namespace troupe::engine
