#include "app/planning_notes.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "app/planning_text.hpp"
#include "scheduler/cost/profile_batch.hpp"
#include "scheduler/recovery/template_layout.hpp"

namespace troupe::app {

namespace {

/// Work of each drawn sample per side: what Entrain's algorithm allocates devices by.
Result<std::int64_t> smallest_batch(const Planning& planning, std::int32_t devices) {
  const auto& request = planning.request;
  if (planning.setup.model.modules.size() < 2 || devices < 2) return std::int64_t{0};
  auto works = scheduler::sample_workloads(planning.model, request.samples);
  if (!works.ok()) return std::move(works).error();
  scheduler::ProfileBatchInput input;
  for (const auto& work : works.value())
    input.samples.push_back({work.encoder_total_ms, work.llm_total_ms});
  input.devices = devices;
  input.seed = request.seed;
  return scheduler::smallest_batch(input);
}

}  // namespace

Result<scheduler::TemplateSet> planned_templates(const Planning& planning, std::int32_t pipelines,
                                                 std::int64_t nodes, std::int64_t fault_tolerance) {
  return scheduler::layout_templates(planning.request, planning.setup.model, pipelines, nodes,
                                     fault_tolerance);
}

Result<PlanningNotes> planning_notes(const Planning& planning,
                                     const scheduler::AutoLayout& layout) {
  PlanningNotes notes;
  auto b_min = smallest_batch(planning, static_cast<std::int32_t>(layout.plan.devices.size() /
                                                                  layout.plan.pipelines.size()));
  if (!b_min.ok()) return std::move(b_min).error();
  notes.b_min = b_min.value();
  if (planning.request.fault_tolerance == 0) return notes;
  // Standby holders make up for pipelines that are not there: nodes are not kept for them.
  const auto pipelines = static_cast<std::int32_t>(llm_replicas(layout.plan));
  auto templates = planned_templates(planning, pipelines, planning.request.cluster.nodes,
                                     std::min(planning.request.fault_tolerance, pipelines - 1));
  if (templates.ok())
    notes.templates = std::move(templates).value();
  else
    notes.no_templates = templates.error().message;
  return notes;
}

}  // namespace troupe::app
