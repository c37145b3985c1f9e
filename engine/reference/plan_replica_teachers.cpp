// Teachers in the plan's reference.

#include <map>

#include "engine/execution/teacher_packing.hpp"
#include "engine/reference/plan_replica.hpp"

namespace troupe::engine {

Status PlanReplica::teach_part(const IterationPlan& iteration, ReplicaId replica, PartKey key,
                               ModuleId teacher, const SampleStore& store, Crossings& crossings) {
  const auto& part = iteration.microbatches[replica.index()][key.microbatch.index()]
                         .parts[key.part.index()]
                         .samples;
  auto packed = pack_teacher_shapes(iteration.samples, part);
  if (!packed.ok()) return std::move(packed).error();
  models::PackedBatch& batch = packed.value();
  if (batch.segments.empty()) return Done{};
  auto text = pack_text(plan_.model, iteration.samples, part, store);
  if (!text.ok()) return std::move(text).error();
  batch.input = text_alone(text.value());
  batch.losses = std::make_shared<models::AuxiliaryLosses>();
  const at::Tensor rows = run(replica, teacher, {}, batch);
  record_auxiliary(iteration, teacher, key, *batch.losses);
  crossings.push_back({replica, key, teacher, rows, rows,
                       row_spans(plan_.model, teacher, RowKind::output, iteration.samples, part)});
  return Done{};
}

Status PlanReplica::attach_taught(const Crossings& crossings, std::span<const std::int32_t> part,
                                  const PackedText& text, models::PackedBatch& batch) const {
  for (std::size_t m = 0; m < plan_.model.modules.size(); ++m) {
    if (plan_.model.modules[m].kind != ModuleKind::teacher) continue;
    std::map<std::int32_t, at::Tensor> rows;
    for (const Crossing& crossing : crossings)
      if (crossing.encoder == ModuleId{m})
        for (const RowSpan& span : crossing.spans)
          rows[span.sample] = crossing.leaf.narrow(0, span.begin, span.rows);
    auto taught = taught_rows(plan_.model.modules[m].name, text, part, rows);
    if (!taught.ok()) return std::move(taught).error();
    if (taught.value().rows.defined()) batch.taught.push_back(std::move(taught).value());
  }
  return Done{};
}

}  // namespace troupe::engine
